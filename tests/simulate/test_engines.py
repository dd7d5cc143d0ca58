"""The crowd engine beside every role on one host: with the same coins and keys, the same rounds to the byte."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import pytest

import crowdfl
from crowdfl.crypto.coins import Coins
from crowdfl.crypto.sealing import seal_to
from crowdfl.protocols.common import mask_seed
from crowdfl.protocols.shares import profile
from crowdfl.protocols.shares.dealing.keys import deal_keys
from crowdfl.protocols.shares.round import average, sp
from crowdfl.protocols.shares.round.csp_records import CspRecords
from crowdfl.protocols.shares.round.manifest import ManifestEntry
from crowdfl.protocols.shares.round.sp import SharesSp
from crowdfl.settings import TaskSettings
from crowdfl.simulation import crowd_servers
from crowdfl.simulation.crowd_servers import Handed
from crowdfl.simulation.replayed import seeded
from crowdfl.simulation.roles_engine import RolesEngine
from tests.simulate.lines import START, evaluate, people, train

MANY = people(8)
_REQUESTER = "requester"


@dataclass
class Noted:
    """What one run drew and published."""

    entries: dict[tuple[int, str], ManifestEntry] = field(default_factory=dict)
    seeds: dict[int, bytes] = field(default_factory=dict)
    published: dict[int, bytes] = field(default_factory=dict)
    cohorts: set[int] = field(default_factory=set)  # that rounds had
    engines: list[RolesEngine] = field(default_factory=list)

    def entry(self, number: int, who: str) -> ManifestEntry:
        """Nothing of an upload that SP never counted, of a round that was given up."""
        return self.entries.get((number, who), crowd_servers.NOTHING)

    def handed(self) -> Handed:
        (roles,) = self.engines
        names = {name: person.keys.who for name, person in roles.people.items()}
        return Handed(roles.task, names.__getitem__, self.entry, self.seeds.__getitem__)


def _same_draws(patch: pytest.MonkeyPatch) -> None:
    """Masks, noise, cohorts and keys of every run are those of the one before; each has a stream of its own."""
    for module in (average, sp, mask_seed):
        patch.setattr(module, "secret_bytes", Coins(hashlib.sha256(module.__name__.encode()).digest()).take)

    def sealed(reader: bytes, plaintext: bytes, context: bytes) -> bytes:
        with seeded(plaintext + context):
            return seal_to(reader, plaintext, context)

    def dealt(bits: int) -> Any:
        with seeded(b"dealing"):
            return deal_keys(bits)

    patch.setattr(average, "seal_to", sealed)
    for module in (profile, crowd_servers):
        patch.setattr(module, "deal_keys", dealt)


def _after(patch: pytest.MonkeyPatch, kind: type, name: str, note: Callable[..., None]) -> None:
    real = getattr(kind, name)

    def noted(self: Any, *given: Any, **named: Any) -> Any:
        found = real(self, *given, **named)
        note(self, *given)
        return found

    patch.setattr(kind, name, noted)


def played(engine: str, given: Any, handed: Handed | None = None) -> tuple[Any, Noted]:
    noted = Noted()

    def counted(side: Any, *_: Any) -> None:
        noted.entries |= {(side.round_number, who): entry for who, entry in side._counted.items()}

    def referred(side: Any, *_: Any) -> None:
        noted.entries[side.round_number, _REQUESTER] = ManifestEntry.of(side._reference)

    def left(side: Any, publication: Any) -> None:
        noted.published[side.round_number] = publication.to_bytes()

    def begun(records: Any, first: Any) -> None:
        noted.seeds[records.number] = records.round.seed
        noted.cohorts.add(first.cohorts)

    def made(engine: RolesEngine, *_: Any) -> None:
        noted.engines.append(engine)

    with pytest.MonkeyPatch.context() as patch:
        _same_draws(patch)
        for kind, name, note in (
            (SharesSp, "_count", counted),
            (SharesSp, "take_reference", referred),
            (SharesSp, "_leave", left),
            (CspRecords, "begin", begun),
            (RolesEngine, "__init__", made),
        ):
            _after(patch, kind, name, note)
        if (most := given.pop("cohort", None)) is not None:
            patch.setattr(TaskSettings, "most_cohorts", property(lambda self: -(-self.most_in_round // most)))
        if handed is not None:
            patch.setattr(crowd_servers, "Handed", lambda: handed)
        usual = {"rounds": 3, "initial": START, "progress": False, "lanes": 128, "engine": engine}
        usual |= {"evaluate": evaluate, "train": train, "data": MANY}
        result = crowdfl.simulate(**{k: v for k, v in (usual | given).items() if v is not None or k == "evaluate"})
    return result, noted


def _towards(model: Any, data: Any) -> Any:
    """Towards somebody's numbers, or away from them."""
    target, sign = data
    return model + sign * 0.5 * (target - model), 10


def _targets() -> dict[str, Any]:
    chance = np.random.default_rng(4)
    return {f"p{i}": (np.ones(8) + chance.normal(size=8) * 0.2, 1 if i < 5 else -1) for i in range(7)}


def _idle(model: Any, data: Any, info: Any) -> Any:
    return train(model, data), 0 if info.person == "p2" and info.round == 2 else len(data[1])


ALIKE = {
    "samples": {"dropouts": {"p0": 1, "p3": [2, 3]}},
    "drawn and paid": {"per_round": 5, "dropouts": {"p1": [1, 2, 3], "p2": [2]}, "budget": "6.00", "pay": "equal"},
    "others drawn": {"per_round": 3, "dropouts": 0.5, "rounds": 4},
    "late": {"late": "10 min", "dropouts": 0.4, "budget": "5.00", "pay": "samples", "min_participants": 6},
    "given up": {"dropouts": dict.fromkeys(["p0", "p1", "p2", "p3", "p4", "p5"], 2)},
    "nobody's samples": {"train": _idle},
    "cohorts": {
        "weighting": "equal",
        "cohort": 3,
        "budget": "4.50",
        "pay": "equal",
    },  # no other case has these settings
    "reference": {
        "train": _towards,
        "evaluate": None,
        "data": _targets(),
        "initial": np.zeros(8),
        "reference": (np.ones(8), 1),
        "budget": "10.00",
        "lanes": None,
    },
    "noise": {"epsilon": 8, "weighting": "equal", "noise": "any", "max_norm": 1.0, "clip": 1.0, "lanes": 1024},
    "step": {"server_step": "fedadam", "server_rate": 0.05},
    "unchecked": {"check": "none", "lanes": None},
    "distance": {"budget": "5.00", "pay": "distance"},
    "some evaluate": {"evaluate_per_round": 3},
}
_OWN = ("seconds", "bytes_down")
_TO_A_MILLIONTH = ("distance",)  # divisions round each server's share: by two millionths, as the rule says


_FIRST = ("samples", "drawn and paid", "reference", "noise")  # of the first tier; the others in the second


@pytest.mark.parametrize(
    "case", [one if one in _FIRST else pytest.param(one, marks=pytest.mark.second) for one in ALIKE]
)
def test_a_crowd_plays_the_rounds_that_every_role_plays(case: str) -> None:
    """Publications are sums behind masks, seals and CSP's signed record: who is in, who is not, and why."""
    roles, noted = played("roles", dict(ALIKE[case]))
    crowd, again = played("crowd", dict(ALIKE[case]), noted.handed())
    assert again.published == noted.published
    assert noted.published
    assert noted.cohorts == ({3} if case == "cohorts" else {1})
    assert all(map(np.array_equal, crowd.model, roles.model))
    assert (crowd.settings, crowd.notes) == (roles.settings, roles.notes)
    exact = case not in _TO_A_MILLIONTH
    for one, other in zip(crowd.history, roles.history, strict=True):
        for part in fields(one):
            if part.name not in _OWN and (exact or part.name != "rewards"):
                assert getattr(one, part.name) == getattr(other, part.name), part.name
        # Sums and masks are sent without their leading noughts, in an average to each of eight readers.
        assert abs(one.bytes_down - other.bytes_down) <= 64
    assert crowd.rewards.keys() == roles.rewards.keys()
    for name, amount in crowd.rewards.items():
        assert amount == roles.rewards[name] if exact else abs(amount - roles.rewards[name]) < 10**-4
    assert str(crowd.privacy) == str(roles.privacy)
    if not roles.rewards and all(one.is_averaged for one in roles.history):  # nobody claims, nothing was given up
        assert crowd.costs == roles.costs
