"""What each server holds at the end of a campaign, read from its own folder: messages, key shares, plain numbers."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from crowdfl.protocols.hardened.keys import CspBundle, SpBundle
from crowdfl.protocols.messages import Limits
from crowdfl.storage.sql import SqlStore

__all__ = ["SERVERS", "Sight", "count_numbers", "look_at", "shares_in", "shares_of"]

SERVERS = ("kgc", "sp", "csp")


@dataclass(frozen=True)
class Sight:
    """What one server's folder showed."""

    server: str
    shares: tuple[str, ...]  # the key shares found anywhere in its files
    received: str
    keeps: str
    averages: int  # numbers of the true averages found in its files
    initial: int  # numbers of the initial weights found there, which are public: the search does find


def look_at(
    roles: Path, task: str, averages: Sequence[npt.NDArray[np.float64]], initial: npt.NDArray[np.float64]
) -> list[Sight]:
    """Every server's folder, searched file by file."""
    shares, numbers = shares_of(roles, task), np.concatenate([np.zeros(0), *averages])
    received = {
        "kgc": _at_kgc(roles / "kgc", task),
        "sp": _at_sp(roles / "sp", task),
        "csp": _at_csp(roles / "csp", task),
    }
    return [
        Sight(
            server,
            shares_in(roles / server, shares),
            received[server],
            _kept(roles / server),
            count_numbers(roles / server, numbers),
            count_numbers(roles / server, initial),
        )
        for server in SERVERS
    ]


def shares_of(roles: Path, task: str) -> dict[str, int]:
    """The two shares of the task's key, each from the one folder where it belongs."""
    sp = SpBundle.from_bytes((roles / "sp" / "keys" / f"{task}.sp").read_bytes(), Limits.plain())
    csp = CspBundle.from_bytes((roles / "csp" / "keys" / f"{task}.csp").read_bytes(), Limits.plain())
    return {"lambda_sc": sp.share, "lambda_c": csp.share}


def shares_in(folder: Path, shares: Mapping[str, int]) -> tuple[str, ...]:
    """Which of the shares are somewhere in a folder: as bytes in either order, in hex, or in decimal."""
    found = set()
    for data in _files(folder):
        lowered = data.lower()
        for name, share in shares.items():
            raw = share.to_bytes(-(-share.bit_length() // 8), "big")
            if any(form in data for form in (raw, raw[::-1], str(share).encode())) or f"{share:x}".encode() in lowered:
                found.add(name)
    return tuple(sorted(found))


def count_numbers(folder: Path, numbers: npt.NDArray[np.float64]) -> int:
    """How many of these numbers are somewhere in a folder, as 64-bit numbers in either byte order at any offset."""
    wanted = np.unique(numbers[numbers != 0.0].astype("<f8").view("<u8"))
    both = np.unique(np.concatenate([wanted, wanted.byteswap()]))
    found = np.zeros(len(both), dtype=np.bool_)
    for data in _files(folder):
        for offset in range(8):
            words = np.frombuffer(
                data, dtype="<u8", count=max(0, (len(data) - offset) // 8), offset=min(offset, len(data))
            )
            found |= np.isin(both, words)
    places = np.searchsorted(both, wanted), np.searchsorted(both, wanted.byteswap())
    return int((found[places[0]] | found[places[1]]).sum())


def _files(folder: Path) -> Iterator[bytes]:
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            yield path.read_bytes()


def _kept(folder: Path) -> str:
    sizes = [path.stat().st_size for path in folder.rglob("*") if path.is_file()]
    return f"{len(sizes)} files, {sum(sizes):,} bytes"


def _store(folder: Path) -> SqlStore:
    return SqlStore(f"sqlite:///{folder / 'state.db'}")


def _at_kgc(folder: Path, task: str) -> str:
    left = sorted(path.name.removeprefix(f"{task}.") for path in (folder / "keys").glob(f"{task}.*"))
    return f"a definition and invitations; left of the keys it dealt: {', '.join(left) or 'nothing'}"


def _at_sp(folder: Path, task: str) -> str:
    store = _store(folder)
    try:
        uploads = [upload for round_ in store.rounds(task) for upload in store.uploads(task, round_.number)]
    finally:
        store.close()
    late = sum(upload.late for upload in uploads)
    left = sum(1 for path in (folder / "blobs" / task).glob("rounds/*/uploads/*") if path.is_file())
    return f"{len(uploads)} encrypted uploads, {late} of them late; {left} still kept"


def _at_csp(folder: Path, task: str) -> str:
    answers = [path for path in (folder / "blobs" / task / "answers").rglob("*") if path.is_file()]
    store = _store(folder)
    try:
        people = len(store.participants(task))
    finally:
        store.close()
    size = sum(path.stat().st_size for path in answers)
    return f"{people} certificates; masked requests, of which it keeps {len(answers)} answers, {size:,} bytes"
