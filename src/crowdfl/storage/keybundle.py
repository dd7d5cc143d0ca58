"""What each role holds of a key, and the fields that carry it in a key file. Layout: docs/key-files.md."""

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from types import MappingProxyType

from gmpy2 import mpz

from crowdfl.crypto.pctd import KeyShare, PrivateKey, PublicKey
from crowdfl.errors import InvalidKey, KeyFileRole

__all__ = ["KeyBundle", "Role", "decode_fields", "encode_fields"]

_FIELD = struct.Struct(">BI")  # tag, length


class Role(StrEnum):
    """Whose keys a file holds."""

    KGC = "kgc"
    SP = "sp"
    CSP = "csp"
    PARTICIPANT = "participant"
    REQUESTER = "requester"


# role: (what it must hold, what it may hold besides)
_HOLDS: Mapping[Role, tuple[set[str], set[str]]] = {
    Role.KGC: ({"private"}, set()),
    Role.SP: ({"lambda_sc"}, {"lambda_sp"}),
    Role.CSP: ({"lambda_c"}, set()),
    Role.PARTICIPANT: (set(), {"lambda_p"}),
    Role.REQUESTER: (set(), {"private"}),  # the paper's profile alone hands the requester the key
}


class _Tag(IntEnum):
    """The fields, in the order in which they are written."""

    N = 1
    H_S = 2
    PRIVATE = 3
    LAMBDA_SC = 4
    LAMBDA_SP = 5
    LAMBDA_C = 6
    LAMBDA_P = 7

    @property
    def label(self) -> str:
        return self.name.lower()


_SHARES = (_Tag.LAMBDA_SC, _Tag.LAMBDA_SP, _Tag.LAMBDA_C, _Tag.LAMBDA_P)


@dataclass(frozen=True, repr=False)
class KeyBundle:
    """What one role holds of a key; a bundle that holds more or less than its role's part cannot be built."""

    role: Role
    public: PublicKey
    private: PrivateKey | None = None
    shares: Mapping[str, KeyShare] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "shares", MappingProxyType(dict(self.shares)))
        self._require_holdings()
        for share in self.shares.values():
            self.public.require_same(share.public)
            if not 0 <= share.exponent < self.public.n_squared:
                raise InvalidKey("a share must lie in [0, N^2)")
        if self.private:
            self.public.require_same(self.private.public)
            if not (0 < self.private.lambda_ < self.public.n and 0 < self.private.u < self.public.n):
                raise InvalidKey("lambda and u must lie in (0, N)")

    @property
    def holds(self) -> frozenset[str]:
        """The names of the secrets in it: `private`, and those of the shares."""
        return frozenset(self.shares) | ({"private"} if self.private else set())

    def _require_holdings(self) -> None:
        must, may = _HOLDS[self.role]
        for name in sorted(must - self.holds):
            raise KeyFileRole(f"the keys of {self.role.value} lack {name}")
        for name in sorted(self.holds - must - may):
            raise KeyFileRole(f"the keys of {self.role.value} must not hold {name}")

    def __repr__(self) -> str:
        return f"KeyBundle({self.role.value}, {self.public!r}, holds {', '.join(sorted(self.holds)) or 'no secret'})"


def encode_fields(bundle: KeyBundle) -> bytes:
    """The fields in ascending order, their widths given by N alone: the length tells nothing of a secret."""
    public, narrow, wide = bundle.public, bundle.public.plaintext_bytes, bundle.public.ciphertext_bytes
    values = {_Tag.N: public.n.to_bytes(narrow, "big"), _Tag.H_S: public.h_s.to_bytes(wide, "big")}
    if bundle.private:
        numbers = bundle.private.lambda_, bundle.private.u
        values[_Tag.PRIVATE] = b"".join(x.to_bytes(narrow, "big") for x in numbers)
    for name, share in bundle.shares.items():
        values[_Tag[name.upper()]] = share.exponent.to_bytes(wide, "big")
    return b"".join(_FIELD.pack(tag, len(values[tag])) + values[tag] for tag in sorted(values))


def decode_fields(role: Role, body: bytes, *, insecure_test_key: bool = False) -> KeyBundle:
    """The bundle that `encode_fields` wrote. InvalidKey or KeyFileRole says what is wrong with any other bytes."""
    values = _split(body)
    public = _public_key(values, insecure_test_key)
    _require_widths(values, public)
    shares = {tag.label: KeyShare(public, _number(values[tag])) for tag in _SHARES if tag in values}
    return KeyBundle(role, public, _private_key(values, public), shares)


def _split(body: bytes) -> dict[_Tag, bytes]:
    """The fields, each known, none twice, in order, to the last byte."""
    found: dict[_Tag, bytes] = {}
    position = last = 0
    while position < len(body):
        start = position + _FIELD.size
        if start > len(body):
            raise InvalidKey("bytes after the last field")
        tag, length = _FIELD.unpack(body[position:start])
        position = start + length
        if tag not in list(_Tag) or tag <= last or position > len(body):
            raise InvalidKey(f"field {tag} is unknown, repeated, out of place or cut short")
        found[_Tag(tag)] = body[start:position]
        last = tag
    return found


def _public_key(values: Mapping[_Tag, bytes], insecure_test_key: bool) -> PublicKey:
    for tag in (_Tag.N, _Tag.H_S):
        if tag not in values:
            raise InvalidKey(f"the field {tag.label} is missing")
    return PublicKey(_number(values[_Tag.N]), _number(values[_Tag.H_S]), insecure_test_key)


def _private_key(values: Mapping[_Tag, bytes], public: PublicKey) -> PrivateKey | None:
    if _Tag.PRIVATE not in values:
        return None
    both, width = values[_Tag.PRIVATE], public.plaintext_bytes
    return PrivateKey(public, _number(both[:width]), _number(both[width:]))


def _require_widths(values: Mapping[_Tag, bytes], public: PublicKey) -> None:
    widths = {_Tag.N: public.plaintext_bytes, _Tag.PRIVATE: 2 * public.plaintext_bytes}
    for tag, value in values.items():
        wanted = widths.get(tag, public.ciphertext_bytes)
        if len(value) != wanted:
            raise InvalidKey(f"the field {tag.label} is of {len(value)} bytes where this key has {wanted}")


def _number(value: bytes) -> mpz:
    return mpz.from_bytes(value, "big")
