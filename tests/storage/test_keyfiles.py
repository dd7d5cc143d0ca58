"""Key files: round trips, and every way in which one can be wrong."""

import hashlib
import os
import stat
import struct
import time
import traceback
from pathlib import Path

import pytest

from crowdfl.crypto import pctd
from crowdfl.crypto.pctd import KeyShare
from crowdfl.errors import (
    InsecureKeyRefused,
    InvalidKey,
    KeyFileDamaged,
    KeyFileError,
    KeyFileExists,
    KeyFileMissing,
    KeyFilePermissions,
    KeyFileRole,
    KeyFileVersion,
    KeyMismatch,
    PassphraseError,
)
from crowdfl.storage.keyfiles import KeyBundle, Role, load, save

PAIR = pctd.keygen(64, insecure_test_key=True)
LAMBDA_C, LAMBDA_SC = PAIR.private.split()
LAMBDA_P, LAMBDA_SP = PAIR.private.split_as_printed()
BUNDLES = {
    "kgc": KeyBundle(Role.KGC, PAIR.public, PAIR.private),
    "sp": KeyBundle(Role.SP, PAIR.public, None, {"lambda_sc": LAMBDA_SC}),
    "sp of the paper": KeyBundle(Role.SP, PAIR.public, None, {"lambda_sp": LAMBDA_SP, "lambda_sc": LAMBDA_SC}),
    "csp": KeyBundle(Role.CSP, PAIR.public, None, {"lambda_c": LAMBDA_C}),
    "participant": KeyBundle(Role.PARTICIPANT, PAIR.public),
    "participant of the paper": KeyBundle(Role.PARTICIPANT, PAIR.public, None, {"lambda_p": LAMBDA_P}),
    "requester": KeyBundle(Role.REQUESTER, PAIR.public),
    "requester of the paper": KeyBundle(Role.REQUESTER, PAIR.public, PAIR.private),
}
SECRETS = [PAIR.private.lambda_, PAIR.private.u, *(s.exponent for s in (LAMBDA_C, LAMBDA_SC, LAMBDA_P, LAMBDA_SP))]
PASSPHRASE = "Größe 12 of the quay"  # noqa: S105 -- it guards test keys
FORMS = pytest.mark.parametrize("passphrase", [None, PASSPHRASE], ids=["plain", "passphrase"])
HEADER = 72
FAST = 8


def write(path: Path, bundle: KeyBundle = BUNDLES["sp of the paper"], passphrase: str | None = None) -> bytes:
    """Save with a work factor that keeps the tests fast, and return the file's bytes."""
    save(path, bundle, passphrase=passphrase, work_factor=FAST)
    return path.read_bytes()


def read(path: Path, role: Role = Role.SP, passphrase: str | None = None) -> KeyBundle:
    """Load a test key."""
    return load(path, role, passphrase=passphrase, insecure_test_key=True)


def forge(path: Path, data: bytes) -> None:
    """Write a plain key file whose checksum is right whatever it holds."""
    path.write_bytes(data + hashlib.sha256(data).digest())
    path.chmod(0o600)


def forge_body(path: Path, original: bytes, body: bytes) -> None:
    """Write a plain key file with another body, its length and checksum right."""
    forge(path, original[: HEADER - 4] + struct.pack(">I", len(body)) + body)


def fields(data: bytes) -> list[bytes]:
    """The fields of a plain key file, by a reader of the test's own."""
    body, found = data[HEADER:-32], []
    while body:
        end = 5 + int.from_bytes(body[1:5], "big")
        found.append(body[:end])
        body = body[end:]
    return found


def assert_tells_no_secret(text: str) -> None:
    """Neither digits of a secret nor the passphrase are in `text`."""
    for number in map(int, SECRETS):
        for form in (str(number), f"{number:x}", f"{number:X}"):
            # A dozen digits in a row are no accident.
            assert not any(form[i : i + 12] in text for i in range(0, max(1, len(form) - 11)))
    assert PASSPHRASE not in text


@FORMS
@pytest.mark.parametrize("name", BUNDLES)
def test_what_is_saved_is_loaded(tmp_path: Path, name: str, passphrase: str | None):
    """Each role gets back what it held, and it still decrypts."""
    bundle = BUNDLES[name]
    write(tmp_path / "key", bundle, passphrase)
    loaded = read(tmp_path / "key", bundle.role, passphrase)
    assert loaded == bundle
    assert loaded.holds == bundle.holds
    if loaded.private:
        assert loaded.private.decrypt(PAIR.public.encrypt(-5)) == -5


@FORMS
def test_the_file_is_the_owners_alone(tmp_path: Path, passphrase: str | None):
    """Mode 0600 whatever the umask says."""
    before = os.umask(0)
    try:
        write(tmp_path / "key", passphrase=passphrase)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "key").stat().st_mode) == 0o600


@pytest.mark.realkey
def test_a_real_key_survives_the_disk(tmp_path: Path):
    """2048 bits, with a passphrase, no word about test keys; the loaded shares decrypt together."""
    pair = pctd.keygen()
    lambda_c, lambda_sc = pair.private.split()
    save(tmp_path / "sp", KeyBundle(Role.SP, pair.public, None, {"lambda_sc": lambda_sc}), passphrase=PASSPHRASE)
    save(tmp_path / "csp", KeyBundle(Role.CSP, pair.public, None, {"lambda_c": lambda_c}))
    sp = load(tmp_path / "sp", Role.SP, passphrase=PASSPHRASE).shares["lambda_sc"]
    csp = load(tmp_path / "csp", Role.CSP).shares["lambda_c"]
    c = pair.public.encrypt(-1234)
    assert pctd.combine(sp.partial_decrypt(c), csp.partial_decrypt(c)) == -1234
    with pytest.raises(PassphraseError, match=r"15\.\.20"):
        save(tmp_path / "weak", KeyBundle(Role.REQUESTER, pair.public), passphrase=PASSPHRASE, work_factor=14)


def test_the_layout_is_the_documented_one(tmp_path: Path):
    """Every byte of a plain file, written out by hand as docs/key-files.md says."""
    n, h_s = PAIR.public.n.to_bytes(16, "big"), PAIR.public.h_s.to_bytes(32, "big")
    body = b"\x01\0\0\0\x10" + n + b"\x02\0\0\0\x20" + h_s + b"\x06\0\0\0\x20" + LAMBDA_C.exponent.to_bytes(32, "big")
    data = b"CFLK\x01\x03\0\0" + PAIR.public.fingerprint + bytes(28) + struct.pack(">I", len(body)) + body
    assert write(tmp_path / "key", BUNDLES["csp"]) == data + hashlib.sha256(data).digest()


@FORMS
def test_a_changed_byte_anywhere_is_found(tmp_path: Path, passphrase: str | None):
    """Every byte of the file, three kinds of change: always a named error, never a key, never a secret in the message."""
    data = write(tmp_path / "key", passphrase=passphrase)
    for position in range(len(data)):
        for change in (0x01, 0x80, 0xFF):
            altered = bytearray(data)
            altered[position] ^= change
            (tmp_path / "key").write_bytes(altered)
            with pytest.raises(KeyFileError) as caught:
                read(tmp_path / "key", passphrase=passphrase)
            assert type(caught.value) in (KeyFileDamaged, KeyFileVersion, KeyFileRole, PassphraseError)
            assert_tells_no_secret(str(caught.value))


@FORMS
def test_a_file_cut_short_is_damaged(tmp_path: Path, passphrase: str | None):
    """At every length, the empty file included."""
    data = write(tmp_path / "key", passphrase=passphrase)
    for length in range(len(data)):
        (tmp_path / "key").write_bytes(data[:length])
        with pytest.raises(KeyFileDamaged):
            read(tmp_path / "key", passphrase=passphrase)


@FORMS
def test_trailing_bytes_are_damage(tmp_path: Path, passphrase: str | None):
    """One byte too many is one too many."""
    data = write(tmp_path / "key", passphrase=passphrase)
    (tmp_path / "key").write_bytes(data + b"\0")
    with pytest.raises(KeyFileDamaged):
        read(tmp_path / "key", passphrase=passphrase)


@FORMS
def test_the_keys_of_another_role_are_refused(tmp_path: Path, passphrase: str | None):
    """Each role reads its own file alone, and is told whose it was given."""
    for name, bundle in BUNDLES.items():
        write(tmp_path / name, bundle, passphrase)
        for role in Role:
            if role is not bundle.role:
                with pytest.raises(KeyFileRole, match=f"keys of {bundle.role.value}; .* of {role.value}"):
                    read(tmp_path / name, role, passphrase)


def test_another_version_is_named(tmp_path: Path):
    """A later format is not called damage, even where the rest is too short for this one."""
    data = write(tmp_path / "key")
    for other in (data[:4] + b"\x02" + data[5:], b"CFLK\x02"):
        (tmp_path / "key").write_bytes(other)
        with pytest.raises(KeyFileVersion, match="version 2; this program reads version 1"):
            read(tmp_path / "key")


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602, 0o610, 0o601, 0o644, 0o666])
def test_a_file_open_to_others_is_refused(tmp_path: Path, mode: int):
    """Any right of group or others, with the command that mends it."""
    write(tmp_path / "key")
    (tmp_path / "key").chmod(mode)
    with pytest.raises(KeyFilePermissions) as caught:
        read(tmp_path / "key")
    assert f"chmod 600 {tmp_path / 'key'}" in str(caught.value)


def test_a_file_of_another_owner_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Who owns the file could change it."""
    write(tmp_path / "key")
    monkeypatch.setattr(os, "geteuid", lambda: os.stat(tmp_path).st_uid + 1)
    with pytest.raises(KeyFilePermissions, match="another user"):
        read(tmp_path / "key")


def test_what_is_no_file_is_refused_at_once(tmp_path: Path):
    """A folder is refused, and a named pipe does not hang the program."""
    os.mkfifo(tmp_path / "pipe", 0o600)
    for path in (tmp_path, tmp_path / "pipe"):
        with pytest.raises(KeyFilePermissions, match="regular file"):
            read(path)


def test_a_missing_file_or_folder_is_named(tmp_path: Path):
    """No file to load, no folder to save in."""
    for path in (tmp_path / "none", tmp_path / "no" / "folder"):
        with pytest.raises(KeyFileMissing, match=path.name):
            read(path)
    with pytest.raises(KeyFileMissing, match="mkdir"):
        write(tmp_path / "no" / "folder")


def test_a_key_is_overwritten_on_request_alone(tmp_path: Path):
    """The default keeps the old key."""
    old = write(tmp_path / "key", BUNDLES["kgc"])
    with pytest.raises(KeyFileExists):
        write(tmp_path / "key", BUNDLES["csp"])
    assert (tmp_path / "key").read_bytes() == old
    save(tmp_path / "key", BUNDLES["csp"], overwrite=True)
    assert read(tmp_path / "key", Role.CSP) == BUNDLES["csp"]


def test_a_field_that_is_unknown_repeated_or_out_of_order_is_refused(tmp_path: Path):
    """Though the checksum is right."""
    data = write(tmp_path / "key")
    n, h_s, sc, sp = fields(data)
    unknown = b"\x63\0\0\0\x01\0"
    for body in ([n, h_s, sc, sp, unknown], [n, h_s, sc, sc, sp], [n, n, h_s, sc], [h_s, n, sc], [n, h_s, sp, sc]):
        forge_body(tmp_path / "key", data, b"".join(body))
        with pytest.raises(KeyFileDamaged, match="unknown, repeated, out of place"):
            read(tmp_path / "key")


def test_a_missing_or_foreign_field_is_refused(tmp_path: Path):
    """A role's file holds what its role may hold, though the checksum is right."""
    data = write(tmp_path / "key")
    n, h_s, sc, sp = fields(data)
    lambda_c = b"\x06" + sc[1:]
    for body, words in (
        ([h_s, sc], "n is missing"),
        ([n, sc], "h_s is missing"),
        ([n, h_s], "lack lambda_sc"),
        ([n, h_s, sp], "lack lambda_sc"),
        ([n, h_s, sc, lambda_c], "must not hold lambda_c"),
        ([], "n is missing"),
    ):
        forge_body(tmp_path / "key", data, b"".join(body))
        with pytest.raises(KeyFileDamaged, match=words):
            read(tmp_path / "key")


def test_fields_of_wrong_lengths_are_refused(tmp_path: Path):
    """A length beyond the end, a leftover too short for a field, a number wider than it should be."""
    data = write(tmp_path / "key")
    n, h_s, sc, _ = fields(data)
    wider = sc[:1] + struct.pack(">I", 33) + b"\0" + sc[5:]
    for last in (sc[:1] + b"\xff\xff\xff\xff" + sc[5:], sc[:-1], sc + b"\x05\0\0", wider, b"\x04\0\0\0\0"):
        forge_body(tmp_path / "key", data, n + h_s + last)
        with pytest.raises(KeyFileDamaged):
            read(tmp_path / "key")


def test_a_share_out_of_range_is_refused(tmp_path: Path):
    """On building a bundle, and in a file whose checksum is right."""
    for exponent in (PAIR.public.n_squared, -1):
        with pytest.raises(InvalidKey):
            KeyBundle(Role.CSP, PAIR.public, None, {"lambda_c": KeyShare(PAIR.public, exponent)})
    data = write(tmp_path / "key")
    n, h_s, sc, _ = fields(data)
    forge_body(tmp_path / "key", data, n + h_s + sc[:5] + PAIR.public.n_squared.to_bytes(32, "big"))
    with pytest.raises(KeyFileDamaged, match=r"\[0, N\^2\)"):
        read(tmp_path / "key")


def test_numbers_that_form_no_key_are_refused(tmp_path: Path):
    """An even N, and a u that is no inverse, behind a right checksum; the message has no digit of them."""
    data = write(tmp_path / "key", BUNDLES["kgc"])
    n, h_s, private = fields(data)
    even, no_inverse = n[:-1] + bytes([n[-1] ^ 1]), private[:-1] + bytes([private[-1] ^ 1])
    for body in (even + h_s + private, n + h_s + no_inverse):
        forge_body(tmp_path / "key", data, body)
        with pytest.raises(KeyFileDamaged) as caught:
            read(tmp_path / "key", Role.KGC)
        assert_tells_no_secret(str(caught.value))


def test_the_fingerprint_must_be_that_of_the_key(tmp_path: Path):
    """A right checksum does not excuse a wrong fingerprint."""
    data = write(tmp_path / "key")
    forge(tmp_path / "key", data[:8] + bytes(32) + data[40:-32])
    with pytest.raises(KeyFileDamaged, match="names one key and holds another"):
        read(tmp_path / "key")


def test_scrypt_settings_without_a_passphrase_are_refused(tmp_path: Path):
    """Every file has one form alone."""
    data = write(tmp_path / "key")
    for position in (7, 40, 67):
        altered = bytearray(data[:-32])
        altered[position] = 1
        forge(tmp_path / "key", bytes(altered))
        with pytest.raises(KeyFileDamaged, match="scrypt settings"):
            read(tmp_path / "key")


def test_an_oversize_file_is_refused_unread(tmp_path: Path):
    """A sparse file of a terabyte costs nothing."""
    write(tmp_path / "key")
    os.truncate(tmp_path / "key", 2**40)
    started = time.perf_counter()
    with pytest.raises(KeyFileDamaged, match="longer than 32768 bytes"):
        read(tmp_path / "key")
    assert time.perf_counter() - started < 1


@pytest.mark.parametrize("log_n", [0, 7, 21, 40, 63, 255])
def test_a_file_cannot_ask_for_more_scrypt_than_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log_n: int):
    """Refused before the key derivation starts; too little is refused as well."""
    data = bytearray(write(tmp_path / "key", passphrase=PASSPHRASE))
    data[7] = log_n
    (tmp_path / "key").write_bytes(data)

    def boom(*_: object, **__: object) -> None:
        raise AssertionError("scrypt was started")

    monkeypatch.setattr("crowdfl.storage.passphrase.Scrypt", boom)
    with pytest.raises(KeyFileDamaged, match=f"2\\^{log_n}"):
        read(tmp_path / "key", passphrase=PASSPHRASE)


def test_a_body_length_larger_than_the_file_costs_nothing(tmp_path: Path):
    """The length is held against the size of the file before anything else."""
    data = write(tmp_path / "key")
    forge(tmp_path / "key", data[: HEADER - 4] + b"\xff\xff\xff\xff" + data[HEADER:-32])
    with pytest.raises(KeyFileDamaged, match="truncated"):
        read(tmp_path / "key")


def test_the_passphrase_must_fit_the_file(tmp_path: Path):
    """Needed and not given, given and not needed, empty, not text, wrong: each says so."""
    write(tmp_path / "sealed", passphrase=PASSPHRASE)
    write(tmp_path / "plain")
    for path, passphrase, words in (
        (tmp_path / "sealed", None, "give its passphrase"),
        (tmp_path / "plain", PASSPHRASE, "has no passphrase"),
        (tmp_path / "sealed", "", "empty"),
        (tmp_path / "sealed", "\udc80", "no text"),
        (tmp_path / "sealed", PASSPHRASE + " ", "wrong, or the file was altered"),
    ):
        with pytest.raises(PassphraseError, match=words):
            read(path, passphrase=passphrase)
    for passphrase in ("", "\udc80"):
        with pytest.raises(PassphraseError):
            write(tmp_path / "new", passphrase=passphrase)


def test_a_passphrase_opens_however_its_accents_are_typed(tmp_path: Path):
    """One letter, or a letter and its accent, are the same passphrase."""
    composed, decomposed = "caf\u00e9", "cafe\u0301"
    write(tmp_path / "key", passphrase=composed)
    assert read(tmp_path / "key", passphrase=decomposed) == BUNDLES["sp of the paper"]


@pytest.mark.parametrize("work_factor", [-1, 0, 7, 21, 64])
def test_work_factors_outside_the_bounds_are_refused(tmp_path: Path, work_factor: int):
    """What could not be loaded is not saved."""
    with pytest.raises(PassphraseError, match="work factor"):
        save(tmp_path / "key", BUNDLES["kgc"], passphrase=PASSPHRASE, work_factor=work_factor)


def test_two_files_of_one_bundle_share_no_salt_nonce_or_ciphertext(tmp_path: Path):
    """Everything behind the fingerprint is fresh."""
    one = write(tmp_path / "1", passphrase=PASSPHRASE)
    two = write(tmp_path / "2", passphrase=PASSPHRASE)
    assert one[:40] == two[:40]
    assert one[40:56] != two[40:56]
    assert one[56:68] != two[56:68]
    assert one[HEADER:] != two[HEADER:]


def test_an_encrypted_file_shows_no_secret_bytes(tmp_path: Path):
    """Not even in part."""
    for name, bundle in BUNDLES.items():
        data = write(tmp_path / name, bundle, PASSPHRASE)
        for secret in SECRETS:
            plain = secret.to_bytes(32, "big").lstrip(b"\0")
            assert not any(plain[i : i + 6] in data for i in range(len(plain) - 5))


@FORMS
def test_short_keys_load_for_tests_alone(tmp_path: Path, passphrase: str | None):
    """The refusal of short keys comes through as itself."""
    write(tmp_path / "key", passphrase=passphrase)
    with pytest.raises(InsecureKeyRefused):
        load(tmp_path / "key", Role.SP, passphrase=passphrase)


@pytest.mark.parametrize(
    ("role", "private", "names"),
    [
        (Role.KGC, False, []),
        (Role.KGC, True, ["lambda_c"]),
        (Role.SP, False, []),
        (Role.SP, False, ["lambda_sp"]),
        (Role.SP, False, ["lambda_sc", "lambda_c"]),
        (Role.SP, True, ["lambda_sc"]),
        (Role.CSP, False, []),
        (Role.CSP, False, ["lambda_c", "lambda_sc"]),
        (Role.CSP, True, ["lambda_c"]),
        (Role.PARTICIPANT, True, []),
        (Role.PARTICIPANT, False, ["lambda_p", "lambda_sp"]),
        (Role.REQUESTER, False, ["lambda_p"]),
        (Role.PARTICIPANT, False, ["lambda_x"]),
    ],
)
def test_no_role_holds_more_or_less_than_its_part(role: Role, private: bool, names: list[str]):
    """Both servers' shares never meet in one bundle."""
    with pytest.raises(KeyFileRole):
        KeyBundle(role, PAIR.public, PAIR.private if private else None, dict.fromkeys(names, LAMBDA_C))


def test_a_bundle_does_not_mix_keys():
    """A share or a private key of another key is refused."""
    other = pctd.keygen(64, insecure_test_key=True)
    with pytest.raises(KeyMismatch):
        KeyBundle(Role.CSP, other.public, None, {"lambda_c": LAMBDA_C})
    with pytest.raises(KeyMismatch):
        KeyBundle(Role.KGC, other.public, PAIR.private)


def test_a_bundle_cannot_be_changed_afterwards():
    """Neither through the mapping that it was built from nor through its own."""
    shares = {"lambda_c": LAMBDA_C}
    bundle = KeyBundle(Role.CSP, PAIR.public, None, shares)
    shares["lambda_sc"] = LAMBDA_SC
    assert bundle.holds == {"lambda_c"}
    with pytest.raises(TypeError):
        bundle.shares["lambda_sc"] = LAMBDA_SC  # type: ignore[index]


def test_no_repr_shows_a_secret():
    """The bundle, its parts and its mapping."""
    for bundle in BUNDLES.values():
        for thing in (bundle, bundle.private, bundle.shares, bundle.public):
            assert_tells_no_secret(f"{thing!r} {thing!s}")
    assert "holds lambda_sc, lambda_sp" in repr(BUNDLES["sp of the paper"])


def test_no_error_shows_a_secret_or_the_passphrase(tmp_path: Path):
    """Nor does anything chained to it."""
    write(tmp_path / "key", passphrase=PASSPHRASE)
    for passphrase in (PASSPHRASE + "\udc80", PASSPHRASE + "x", None):
        with pytest.raises(PassphraseError) as caught:
            read(tmp_path / "key", passphrase=passphrase)
        assert_tells_no_secret("".join(traceback.format_exception(caught.value)))
        assert caught.value.__suppress_context__ or caught.value.__context__ is None
