"""A finished demo campaign, as its processes told it and as their files show it.

What each server holds during a campaign and at its end is read from its own folder: messages, key shares, plain numbers.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from crowdfl.documents.signed import Definition
from crowdfl.learning.models.forms import from_safetensors, read_arrays
from crowdfl.learning.models.shape import Weights
from crowdfl.protocols.hardened.bundles import CspBundle, SpBundle
from crowdfl.protocols.messages import Limits
from crowdfl.protocols.paper.profile import PaperBundle
from crowdfl.protocols.shares.dealing.keys import SharesCspBundle, SharesSpBundle
from crowdfl.storage.model_files import read_model
from crowdfl.storage.sql import SqlStore
from crowdfl_lab.demo.heard import Heard
from crowdfl_lab.demo.plain import Plain, Row, row_of

SERVERS = ("kgc", "sp", "csp")


@dataclass(frozen=True)
class Sight:
    """What one server's folder showed."""

    server: str
    held: tuple[str, ...]  # the key shares found anywhere in its files during the campaign
    left: tuple[str, ...]  # and at its end
    received: str
    keeps: str
    averages: int  # numbers of the true averages found in its files
    initial: int  # numbers of the initial weights found there, which are public: the search does find


@dataclass(frozen=True)
class KeySight:
    """The task's secrets (shares of a key, or seeds), and who held which during the campaign: they are erased at its end."""

    shares: Mapping[str, int] = field(repr=False)
    held: Mapping[str, tuple[str, ...]]

    @classmethod
    def of(cls, roles: Path, task: str, profile: str) -> "KeySight":
        shares = secrets_of(roles, task, profile)
        return cls(shares, {server: shares_in(roles / server, shares) for server in SERVERS})


def are_erased(roles: Path, task: str) -> bool:
    """Key shares and seeds, and what KGC dealt for rounds."""
    return not any(any((roles / server / "keys").glob(f"{task}.*")) for server in ("sp", "csp"))


def look_at(roles: Path, task: str, keys: KeySight, averages: Sequence[Row], initial: Row) -> list[Sight]:
    numbers = np.concatenate([np.zeros(0), *averages])
    sights = []
    for server, received in zip(SERVERS, (_at_kgc, _at_sp, _at_csp), strict=True):
        folder = roles / server
        sizes = [path.stat().st_size for path in _paths(folder)]
        keeps = f"{len(sizes)} files, {sum(sizes):,} bytes"
        found = count_numbers(folder, numbers), count_numbers(folder, initial)
        left = shares_in(folder, keys.shares)
        sights.append(Sight(server, keys.held[server], left, received(folder, task), keeps, *found))
    return sights


def secrets_of(roles: Path, task: str, profile: str) -> dict[str, int]:
    """What each server alone may have, from the one folder where it belongs: shares of a key or, in `shares`, seeds."""
    sp, csp = ((roles / role / "keys" / f"{task}.{role}").read_bytes() for role in ("sp", "csp"))
    limits = Limits.plain()
    if profile == "paper":
        both = (*PaperBundle.from_bytes(sp, limits).secrets, *PaperBundle.from_bytes(csp, limits).secrets)
        return dict(zip(("lambda_sc", "lambda_sp", "lambda_c"), both, strict=True))
    if profile == "shares":
        seeds = SharesSpBundle.from_bytes(sp, limits).seed, SharesCspBundle.from_bytes(csp, limits).seed
        return {
            name: int.from_bytes(seed, "big") for name, seed in zip(("SP's seed", "CSP's seed"), seeds, strict=True)
        }
    return {"lambda_sc": SpBundle.from_bytes(sp, limits).share, "lambda_c": CspBundle.from_bytes(csp, limits).share}


def shares_in(folder: Path, shares: Mapping[str, int]) -> tuple[str, ...]:
    """Which of the shares are somewhere in a folder: as bytes in either order, in hex, or in decimal."""
    found = set()
    for data in _contents(folder):
        lowered = data.lower()
        for name, share in shares.items():
            raw = share.to_bytes(-(-share.bit_length() // 8), "big")
            if any(form in data for form in (raw, raw[::-1], str(share).encode())) or f"{share:x}".encode() in lowered:
                found.add(name)
    return tuple(sorted(found))


def count_numbers(folder: Path, numbers: Row) -> int:
    """How many of these numbers are somewhere in a folder, as 64-bit numbers in either byte order at any offset."""
    wanted = np.unique(numbers[numbers != 0.0].astype("<f8").view("<u8"))
    both = np.unique(np.concatenate([wanted, wanted.byteswap()]))
    found = np.zeros(len(both), dtype=np.bool_)
    for data in _contents(folder):
        for offset in range(min(8, len(data))):
            found |= np.isin(both, np.frombuffer(data, "<u8", (len(data) - offset) // 8, offset))
    places = np.searchsorted(both, wanted), np.searchsorted(both, wanted.byteswap())
    return int((found[places[0]] | found[places[1]]).sum())


def _paths(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*")) if path.is_file())


def _contents(folder: Path) -> Iterator[bytes]:
    for path in _paths(folder):
        with suppress(FileNotFoundError):  # a running server removes some of its files
            yield path.read_bytes()


def _store(folder: Path) -> closing[SqlStore]:
    return closing(SqlStore(f"sqlite:///{folder / 'state.db'}"))


def _at_kgc(folder: Path, task: str) -> str:
    left = sorted(path.name.removeprefix(f"{task}.") for path in (folder / "keys").glob(f"{task}.*"))
    return f"a definition and invitations; left of the keys it dealt: {', '.join(left) or 'nothing'}"


def _at_sp(folder: Path, task: str) -> str:
    with _store(folder) as store:
        uploads = [upload for round_ in store.rounds(task) for upload in store.uploads(task, round_.number)]
    late = sum(upload.late for upload in uploads)
    left = sum(path.is_file() for path in (folder / "blobs" / task).glob("rounds/*/uploads/*"))
    return f"{len(uploads)} protected uploads, {late} of them late; {left} still kept"


def _at_csp(folder: Path, task: str) -> str:
    sizes = [path.stat().st_size for path in _paths(folder / "blobs" / task / "answers")]
    with _store(folder) as store:
        people = len(store.participants(task))
    return f"{people} certificates; masked requests, of which it keeps {len(sizes)} answers, {sum(sizes):,} bytes"


@dataclass
class FinishedCampaign:
    """A finished campaign."""

    folder: Path
    task: str
    heard: Heard
    report: dict[str, Any]
    plain: Plain = field(repr=False)
    keys: KeySight = field(repr=False)
    profile: str
    rounds: int = 3
    vanished: int = 8  # the person who was not heard of from its first upload to the end
    seconds: float = 0.0

    def said(self, event: str) -> Heard:
        return [(name, details) for name, details in self.heard if details.get("event") == event]

    @cached_property
    def rewards(self) -> dict[str, dict[int, int]]:
        found: dict[str, dict[int, int]] = {}
        for name, details in self.said("rewarded"):
            found.setdefault(name, {})[details["round"]] = details["millionths"]
        return dict(sorted(found.items()))

    @cached_property
    def names(self) -> dict[str, str]:
        """Who is who: a participant's pseudonym, and what we call the person."""
        return {details["who"]: name for name, details in self.said("joined")}

    @cached_property
    def definition(self) -> Definition | None:
        return read_model(self._model)[0] if self._model.exists() else None

    @property
    def _model(self) -> Path:
        return self.folder / "model.npz"

    @cached_property
    def models(self) -> dict[int, Weights]:
        """What readers hold of each round: a participant's copy, and the requester's of the last. 0 is what everyone starts
        from; it is public."""
        initial = (self.folder / "roles/sp/blobs" / self.task / "initial").read_bytes()
        if self.definition is None:  # no model was fetched, and nothing is computed from the first one
            return {0: list(read_arrays(initial, ".safetensors").values())}
        found = {0: from_safetensors(self.definition.shape, initial), self.rounds: read_model(self._model)[1]}
        for number in range(1, self.rounds):
            for path in sorted(self.folder.glob(f"person-*/rounds/{number}/average"))[:1]:
                found[number] = from_safetensors(self.definition.shape, path.read_bytes())
        return dict(sorted(found.items()))

    @property
    def averages(self) -> list[Row]:
        """Of all rounds, each in a row."""
        return [row_of(model) for number, model in self.models.items() if number]

    @cached_property
    def apart(self) -> dict[int, float]:
        """By round, the largest difference of any weight to FedAvg from the same model: what this round alone made."""
        before = [number for number in self.plain.people if {number, number - 1} <= self.models.keys()]
        clear = {number: self.plain.round_from(self.models[number - 1], number) for number in before}
        return {number: float(np.abs(row_of(self.models[number]) - row_of(clear[number])).max()) for number in clear}

    @cached_property
    def sights(self) -> list[Sight]:
        return look_at(self.folder / "roles", self.task, self.keys, self.averages, row_of(self.models[0]))
