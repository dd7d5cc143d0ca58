"""A requester that chooses what people are compared with, and a server that wants to know why somebody was left out."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any, cast

import numpy as np

from crowdfl.crypto.compute import default_backend
from crowdfl.crypto.shares.limbs import Bytes
from crowdfl.crypto.signing import SigningKey
from crowdfl.errors import CrowdFLError
from crowdfl.learning.models.learner import Update
from crowdfl.protocols.profile import TaskSpec, Tools
from crowdfl.protocols.shares import reference
from crowdfl.protocols.shares.dealing import correlations
from crowdfl.protocols.shares.round import sp as sp_module
from crowdfl.protocols.shares.round.csp_records import CspRecords
from crowdfl.protocols.shares.round.manifest import ManifestEntry, RoundManifest
from crowdfl.protocols.shares.round.upload import make_upload, parse_upload
from crowdfl.settings import TaskSettings
from crowdfl.simulation.federation import LocalFederation
from crowdfl.simulation.sides import Parties
from crowdfl_lab.audit.finding import SHARES, WRONG_GUESSES, Attack, Finding
from crowdfl_lab.audit.shares.deviating_round import switched, weakened

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


def attack_cohorts() -> Iterator[Finding]:
    """Another reference for each cohort of a round asks each person for the sign of another entry: as many as SP likes."""
    for subject in ("shares, any reference in a cohort", SHARES):
        with weakened(subject, (CspRecords, "require_reference", lambda *_: None)):
            yield _another_direction(subject)


def _another_direction(subject: str) -> Finding:
    title = "signs of entries that a cohort alone is asked for, by a requester and SP"
    attack = Attack("another direction", "new", title, ("requester", "SP"), WRONG_GUESSES)
    names, signing = [f"p{one}" for one in range(2 * _SIZE)], SigningKey.fresh()
    settings = TaskSettings.of(
        profile=SHARES, weighting="equal", max_norm=3.0, clip=3.0, decimals=3, rounds=2, reference=True, lanes=1024,
        min_participants=5, max_participants=len(names), cohort=2,
    )  # fmt: skip
    parties = Parties(TaskSpec("audit", settings, _SIZE, requester=signing.public), Tools(default_backend()))
    rng, sp = np.random.default_rng(1), cast(Any, parties.sp)
    trained = {who: (rng.normal(size=_SIZE) * 0.4, 1) for who in names}
    uploads = parties.encrypt(trained)
    round_, place = parties.open(1), sp._place
    sealing, told = cast(Any, parties.people[names[0]]).bundle.csp_sealing, dict[str, bool]()
    references = [
        parse_upload(
            make_upload(sp._shape, place, reference.REQUESTER_NAME, signing, sealing, along, 1).to_bytes(),
            sp._shape,
            place,
        )
        for along in np.rint(2900 * np.eye(_SIZE)).astype(np.int64)
    ]
    round_.collect(uploads)
    sp.take_reference(references[0].to_bytes())
    cohorts = [names[at : at + 2] for at in range(0, len(names), 2)]
    begun = sp._begun
    judged = sp._judged

    def asking(talk: Any, manifest: RoundManifest) -> Any:  # noqa: ANN401 -- SP's own, with another reference
        sp._reference = references[manifest.cohort - 1]
        return (yield from begun(talk, replace(manifest, reference=ManifestEntry.of(sp._reference).packed)))

    def hearing(now: Any) -> Any:  # noqa: ANN401
        yield from judged(now)
        told.update({who: who in now.members.accepted for who in now.manifest.names})

    sp._begun, sp._judged = asking, hearing
    with switched(sp_module, "cohorts_of", lambda *_: cohorts), suppress(CrowdFLError):
        round_.average()
    truth = {who: trained[who][0][place // 2] > 0 for place, who in enumerate(names)}
    alone = [who for who in names[2:] if who in told]  # beyond the one direction that is stated
    right = sum(told[who] == truth[who] for who in alone)
    wrong = 1 - (right + (len(names) - 2 - len(alone)) / 2) / (len(names) - 2)
    return attack.score(subject, wrong, 0.5, 0.0, f"{right} of {len(names) - 2} signs", "cohorts of SP's choice")


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
