"""An upload: the update as two shares, one in the clear for SP, one as a seed that is sealed to CSP.

CSP's share is the expansion of a fresh seed, SP's is the update minus that: each alone is uniform. The seed is sealed with all
public fields and the hash of SP's share as context, and the participant signs all of it, so that nobody can pair the two
otherwise, and CSP can check the signature without having seen SP's share. A seed serves one body ever. The hash is of the
leaves of SP's share (`crypto.leaves`), and of a salt that is drawn apart from the seed: CSP, who knows the seed and sees the
hash, could otherwise test any guess at an update.

The number of samples is shared beside the update. Where everyone counts once (`weighting = "equal"`) it stays on the device,
and its share is empty.
"""

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from crowdfl.crypto.leaves import leaves_bytes, leaves_of
from crowdfl.crypto.long_bytes import Long
from crowdfl.crypto.randomness import SEED_BYTES, secret_bytes
from crowdfl.crypto.sealing import ReaderKey, seal_to
from crowdfl.crypto.shares.expansion import Expansion, expand
from crowdfl.crypto.signing import SigningKey, verify
from crowdfl.errors import (
    BadSignature,
    DocumentError,
    LengthMismatch,
    NotFinite,
    RoundNotOpen,
    SealBroken,
    SlotOverflow,
    WrongBase,
)
from crowdfl.protocols.common.binding import bind
from crowdfl.protocols.messages import LENGTH_BYTES, Message
from crowdfl.protocols.shares.chain import HASH_BYTES, ROUND_BYTES, Integers, ModelChain, RoundPlace, sha256
from crowdfl.protocols.shares.round.steps import (
    NAME_BYTES,
    SALT_BYTES,
    SAMPLES_BYTES,
    SEALED_BYTES,
    SIGNATURE_BYTES,
    UPLOAD,
    Facts,
)
from crowdfl.protocols.shares.shape import SharesShape
from crowdfl.protocols.steps import FieldForm, require_fields
from crowdfl.protocols.uploads import IN_PIECES


class UploadBody(Message, kind=IN_PIECES, repr=False):
    """What a participant sends to SP: all there is from a phone in a round."""

    task: str
    number: bytes  # the round, 4 bytes big endian
    base: bytes
    who: str
    digest: bytes  # of the salt and SP's shares
    sealed: bytes  # the seed of CSP's shares
    signature: bytes
    salt: bytes  # of the hash: 32 fresh bytes, which CSP never sees
    samples: bytes  # SP's share of the number of samples: 16 bytes, little endian; none where everyone counts once
    leaves: bytes  # of the pieces of the last field
    shares: Long  # SP's share of the update: little-endian numbers of the task's ring

    def __repr__(self) -> str:
        return f"UploadBody({self.who!r} in round {int.from_bytes(self.number, 'big')} of task {self.task!r})"

    @property
    def place(self) -> RoundPlace:
        return RoundPlace(self.task, int.from_bytes(self.number, "big"), self.base)


def share_digest(salt: bytes, samples: bytes, length: int, leaves: bytes) -> bytes:
    """Of SP's shares, by their leaves."""
    return sha256(bind("crowdfl shares 1", salt, samples, length.to_bytes(8, "big"), leaves))


def upload_statement(place: RoundPlace, who: str, digest: bytes, sealed: bytes) -> bytes:
    """What a participant signs."""
    return place.bind("crowdfl upload 1", who.encode(), digest, sealed)


def seal_context(place: RoundPlace, who: str, digest: bytes) -> bytes:
    return place.bind("crowdfl share seed 1", who.encode(), digest)


def expanded_update(seed: bytes, place: RoundPlace, who: str, length: int) -> Expansion:
    """CSP's share of an update."""
    return Expansion(seed, place.bind("crowdfl share 1 update", who.encode()), length)


def expanded_samples(seed: bytes, place: RoundPlace, who: str, length: int = SAMPLES_BYTES) -> int:
    """CSP's share of a number of samples, of so many bytes: 0 where everyone counts once."""
    return int.from_bytes(expand(seed, place.bind("crowdfl share 1 samples", who.encode()), length), "little")


def open_seed(sealing: ReaderKey, place: RoundPlace, who: str, digest: bytes, sealed: bytes) -> bytes:
    """CSP: the seed that a participant has sealed; `SealBroken` for anything else."""
    seed = sealing.open(sealed, seal_context(place, who, digest))
    if len(seed) != SEED_BYTES:
        raise SealBroken(f"a seal holds {len(seed)} bytes where a seed of {SEED_BYTES} is expected")
    return seed


class UpdateEncoder:
    """A trained model as the integers that are shared: the change since the base, in units of 10^-L.

    Times the samples; or, where everyone counts once, no longer than `max_norm` as integers, so that no honest one is rejected.
    """

    def __init__(self, shape: SharesShape, *, keeps_room: bool = False) -> None:
        self._shape = shape
        self._room: npt.NDArray[np.float64] | None = None
        self._start: tuple[ModelChain, npt.NDArray[np.float64]] | None = None  # a model that many start from
        self._keeps_room = keeps_room  # for the next of many: fresh memory takes as long as what is done in it
        self.clipped = 0  # weights of the last update that were clipped
        self.scaled: float | None = None  # what the last update was scaled down by, to keep to the task's norm bound
        self.length = 0.0  # of the last update after that, in the model's own units

    def encode(self, weights: npt.NDArray[np.float64], base: ModelChain, samples: int) -> Integers:
        whole = self.encode_once(weights, base, samples)
        if self._shape.widths.has_counts:
            whole *= samples
        return whole

    def encode_once(self, weights: npt.NDArray[np.float64], base: ModelChain, samples: int) -> Integers:
        """The same, not yet times the samples."""
        settings, unit, has_counts = self._shape.spec.settings, self._shape.widths.unit, self._shape.widths.has_counts
        if samples < 1 or (has_counts and samples > settings.max_samples):
            raise SlotOverflow(f"{samples} samples; this task takes 1 to {settings.max_samples} of one participant")
        flat = np.asarray(weights, dtype=np.float64).reshape(-1)
        if len(flat) != len(base.weights):
            raise LengthMismatch(f"{len(flat)} weights where the model has {len(base.weights)}")
        change, squares = self._rows(len(flat))
        np.subtract(flat, self._starting_from(base, change), out=change)
        self._keep_within_norm(change, squares)
        self.clipped = 0
        if max(change.max(), -change.min()) > settings.clip:
            self.clipped = int(np.count_nonzero(np.abs(change) > settings.clip))
            np.clip(change, -settings.clip, settings.clip, out=change)
        change *= unit
        if not has_counts:
            return integers_within(change, settings.length_units)
        whole: Integers = np.rint(change, out=change).astype(np.int64)
        return whole

    def _starting_from(self, base: ModelChain, room: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """In the model's own units."""
        unit = self._shape.widths.unit
        if not self._keeps_room:
            return np.divide(base.weights, unit, out=room)
        if self._start is None or self._start[0] is not base:
            self._start = base, base.weights / unit
        return self._start[1]

    def _rows(self, length: int) -> npt.NDArray[np.float64]:
        """Two, to compute in."""
        rows = np.empty((2, length)) if self._room is None else self._room
        self._room = rows if self._keeps_room else None
        return rows

    def _keep_within_norm(self, change: npt.NDArray[np.float64], squares: npt.NDArray[np.float64]) -> None:
        """Scaled down to the task's norm bound, if there is one."""
        with np.errstate(over="ignore", invalid="ignore"):
            norm = float(np.sqrt(np.sum(np.multiply(change, change, out=squares))))
        if not np.isfinite(norm):  # a weight is, or a square was too large
            norm = _long_norm(change)
        bound = self._shape.spec.settings.max_norm
        self.scaled = None if bound is None or norm <= bound else bound / norm
        self.length = norm if bound is None else min(norm, bound)
        if self.scaled is not None:
            change *= self.scaled


def integers_within(change: npt.NDArray[np.float64], most: int) -> Integers:
    """The nearest integers to an update in units; shrunk, if these are longer than `most`, until they are not.

    Every step of it is one that a browser computes to the same bit. Each try shrinks by more than the one before it could ask
    for, so that a few are enough.
    """
    factor, least = 1.0, 0.25 / most
    whole = np.rint(change).astype(np.int64)
    while (square := _square(whole)) > most * most:
        factor *= max(0.0, min(most / math.sqrt(square), 1 - least))
        least *= 2
        whole = np.rint(change * factor).astype(np.int64)
    return whole


def _square(whole: Integers) -> int:
    """The squared length, exactly."""
    largest = int(np.abs(whole).max())
    if largest * largest * len(whole) < 1 << 63:
        return int(np.dot(whole, whole))
    return sum(entry * entry for entry in whole.tolist())


def _long_norm(change: npt.NDArray[np.float64]) -> float:
    if not np.isfinite(change).all():
        raise NotFinite("a weight is NaN or infinite")
    largest = float(np.abs(change).max())
    return largest * float(np.sqrt(np.sum((change / largest) ** 2)))


def make_upload(
    shape: SharesShape,
    place: RoundPlace,
    who: str,
    signing: SigningKey,
    csp_sealing: bytes,
    update: Integers,
    samples: int,
) -> UploadBody:
    """An upload of these integers, with a seed and a salt that nothing else gets."""
    drawn = secret_bytes(SEED_BYTES), secret_bytes(SALT_BYTES)
    return upload_from_seed(shape, place, who, signing, csp_sealing, update, samples, *drawn)


def upload_from_seed(
    shape: SharesShape,
    place: RoundPlace,
    who: str,
    signing: SigningKey,
    csp_sealing: bytes,
    update: Integers,
    samples: int,
    seed: bytes,
    salt: bytes,
) -> UploadBody:
    """The same from given bytes: for vectors. A seed that serves two bodies gives away their difference."""
    rest = update.astype(np.uint64)  # modulo 2^64: modulo 2^k once it is encoded
    shape.ring.accumulate(np.subtract, rest, expanded_update(seed, place, who, shape.share_bytes))
    shares = shape.ring.encode(rest)
    del rest
    counted = (samples - expanded_samples(seed, place, who, shape.count_bytes)) % shape.count_modulus
    count = counted.to_bytes(shape.count_bytes, "little")
    leaves = leaves_of(shares)
    digest = share_digest(salt, count, len(shares), leaves)
    sealed = seal_to(csp_sealing, seed, seal_context(place, who, digest))
    signature = signing.sign(upload_statement(place, who, digest, sealed))
    number = place.number.to_bytes(ROUND_BYTES, "big")
    return UploadBody(place.task, number, place.base, who, digest, sealed, signature, salt, count, leaves, shares)


def head_bytes(shape: SharesShape) -> int:
    """Of every upload of a task, by a participant whose name has the usual length: what stands before its shares."""
    fixed = bytes(ROUND_BYTES), bytes(HASH_BYTES), "0" * NAME_BYTES, bytes(HASH_BYTES), bytes(SEALED_BYTES)
    fields = bytes(SIGNATURE_BYTES), bytes(SALT_BYTES), bytes(shape.count_bytes), bytes(leaves_bytes(shape.share_bytes))
    return len(UploadBody(shape.spec.name, *fixed, *fields, b"").to_bytes())


def upload_bytes(shape: SharesShape) -> int:
    return head_bytes(shape) + shape.share_bytes


def parse_upload(data: Long, shape: SharesShape, place: RoundPlace) -> UploadBody:
    """The fields of an upload to this round: lengths, task, round and base are right; whose it is, `require_signed` says."""
    return _required(UploadBody.from_bytes(data, shape.limits()), UPLOAD, shape, place)


def parse_head(data: bytes, shape: SharesShape, place: RoundPlace) -> UploadBody:
    """The same of an upload whose shares are elsewhere: none are in it."""
    length, end = shape.share_bytes, len(data) - LENGTH_BYTES
    if int.from_bytes(data[end:], "big") != length:
        raise LengthMismatch(f"shares of another length than {length} bytes: not of this task")
    return _required(UploadBody.from_bytes(data[:end] + bytes(LENGTH_BYTES), shape.limits()), UPLOAD[:-1], shape, place)


def _required(
    body: UploadBody, fields: Sequence[FieldForm[Facts]], shape: SharesShape, place: RoundPlace
) -> UploadBody:
    require_fields(fields, body, Facts.most(shape))
    if body.task != place.task:
        raise DocumentError("this upload is for another task")
    if body.place.number != place.number:
        raise RoundNotOpen(f"an upload for round {body.place.number}, and this is round {place.number}")
    if body.base != place.base:
        raise WrongBase(
            "this update is to another model than the one that the round starts from: read the last average first"
        )
    return body


def require_leaves(body: UploadBody) -> None:
    """SP's shares are those whose leaves stand before them: the one pass over them."""
    if leaves_of(body.shares) != body.leaves:
        raise BadSignature("the shares of this upload are not those that its leaves are of")


def require_signed(body: UploadBody, key: bytes, shape: SharesShape) -> None:
    """The leaves are those that the participant has signed for."""
    if share_digest(body.salt, body.samples, shape.share_bytes, body.leaves) != body.digest:
        raise BadSignature("the shares of this upload are not those that its hash is of")
    verify(key, upload_statement(body.place, body.who, body.digest, body.sealed), body.signature)
