"""A requester that chooses what people are compared with, and a server that wants to know why somebody was left out."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from crowdfl.crypto.shares.limbs import Bytes
from crowdfl.learning.models.learner import Update
from crowdfl.protocols.shares import reference
from crowdfl.protocols.shares.dealing import correlations
from crowdfl.simulation.federation import LocalFederation
from crowdfl_lab.audit.finding import SHARES, WRONG_GUESSES, Attack, Finding
from crowdfl_lab.audit.shares.deviating_round import switched

_SIZE, _VICTIM = 8, "victim"
_SIGNS = (1, -1, -1, 1)  # of the victim's first entries
_LENGTH = 1  # the place of the answer on lengths, among those of an upload
_ROUNDS = 3


def _federation(people: int) -> LocalFederation:
    return LocalFederation(
        reference=True,
        weighting="equal",
        max_norm=4.0,
        clip=4.0,
        decimals=3,
        max_participants=people,
        rounds=_ROUNDS + 2,
    )


def attack_direction() -> Iterator[Finding]:
    """A reference along one weight tells the sign of that weight, each time: one bit of each person, and no more."""
    title = "signs of an update's entries, by a requester that chooses a direction in each round"
    attack = Attack("chosen direction", "new", title, ("requester",), WRONG_GUESSES, conceded=True)
    federation, guesses = _federation(4), list[int]()
    change = np.concatenate([np.array(_SIGNS) * 0.25, np.full(_SIZE - len(_SIGNS), 0.05)])
    base = np.zeros(_SIZE)
    for place in range(len(_SIGNS)):
        others = {f"p{one}": Update([base + 0.2], 1) for one in range(3)}
        # Longer each time, to outweigh the sums so far.
        along = Update([base + np.eye(_SIZE)[place] * 0.4 * 2**place], 1)
        found = federation.round({**others, _VICTIM: Update([base + change], 1)}, reference=along)
        guesses.append(-1 if _VICTIM in found.rejected else 1)
        base = found.model[0]
    wrong = float(np.mean([guess != sign for guess, sign in zip(guesses, _SIGNS, strict=True)]))
    recovered = f"{round((1 - wrong) * len(_SIGNS))} of {len(_SIGNS)} signs in as many rounds"
    yield attack.score(SHARES, wrong, 0.5, 0.0, recovered, "one bit of each person and round, shown before joining")


def attack_condition() -> Iterator[Finding]:
    """Whether an upload was too long, or opposed, by a server that strips its own dealt bits off the answers that are opened.

    The requester knows the reference, and adds nothing: the answers are all that the two see together of an upload."""
    people, long = 32, 8
    for subject in ("shares, answers without dealt bits", SHARES):
        seen = list[Bytes]()

        def look(dealt: Any, slots: Any, shown: Bytes, count: int, seen: list[Bytes] = seen) -> Bytes:  # noqa: ANN401
            own = dealt.flips.reshape(-1, reference._ANSWERS)[slots]
            seen.append(shown ^ reference._case(own.reshape(-1)))
            return _LOOKED_UP(dealt, slots, shown, count)

        flips = _no_flips if subject != SHARES else _FLIPS
        with switched(reference, "_looked_up", look), switched(correlations._Numbers, "flips", flips):
            truth = _rounds(_federation(people), people, long)
        for place, server in enumerate(("SP", "CSP")):
            title = f"whether an upload was left out for its length, by {server} and the requester from the answers"
            attack = Attack("which condition", "new", title, (server, "requester"), WRONG_GUESSES)
            told = np.array([answers[:people] >> _LENGTH & 1 for answers in seen[place::2]]).reshape(-1)
            wrong = float((told.astype(bool) != truth).mean())
            recovered = f"{round((1 - wrong) * len(truth))} of {len(truth)} answers"
            yield attack.score(subject, wrong, 0.5, 0.0, recovered, "the verdict's one bit is all that is opened bare")


_FLIPS, _LOOKED_UP = correlations._Numbers.flips, reference._looked_up


def _no_flips(_: object, count: int) -> Bytes:
    return np.zeros(count, dtype=np.uint8)


def _rounds(federation: LocalFederation, people: int, long: int) -> Any:  # noqa: ANN401
    """Whether each one's upload was short enough, in the order of their slots."""
    base, truth = np.zeros(_SIZE), []
    for _ in range(_ROUNDS):
        lengths = {f"p{one}": 0.5 if one < long else 0.1 for one in range(people)}
        found = federation.round(
            {who: Update([base + length], 1) for who, length in lengths.items()}, reference=Update([base + 0.1], 1)
        )
        names = {federation.host.people[who].keys.who: length < 0.2 for who, length in lengths.items()}
        truth += [names[who] for who in sorted(names)]
        base = found.model[0]
    return np.array(truth)
