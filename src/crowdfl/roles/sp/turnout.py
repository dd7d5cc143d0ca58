"""Who could have sent in each round, who did, and what became of it: what the requester is shown of its people.

Nobody is missed who could not have sent: who joined after the round had closed, was not drawn for it, or was gone before its
end. Of a person with two devices, the one that could send at the round's end counts. By the names in the task; never what was
sent, and of what was left out only how many uploads and why.
"""

import contextlib
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

from crowdfl.documents.envelope import Envelope
from crowdfl.documents.signed import Consent
from crowdfl.errors import CrowdFLError, QuotaExceeded
from crowdfl.reasons import Reason
from crowdfl.roles.ports import Blobs, SpStore
from crowdfl.roles.records import Round, RoundState, StoredParticipant
from crowdfl.roles.sp.results import rejected_in
from crowdfl.settings import TaskSettings, averages_again

PEOPLE_COLUMNS = ("who", "state", "came", "sent", "missing", "drawn")
_MOST = 20_000  # people that the requester is shown at once


def left_out(store: SpStore, blobs: Blobs, task: str, rounds: Collection[Round]) -> dict[int, dict[str, Reason]]:
    """By round: whose uploads do not count, and why. Nothing more of a round whose file was purged, or cannot be read."""
    dropped, gone = store.dropped_uploads(task), {(number, who) for number, who, _ in store.gone_uploads(task)}
    found = {}
    for one in rounds:
        rejected: dict[str, Reason] = {}
        with contextlib.suppress(CrowdFLError, OSError, ValueError):
            rejected = rejected_in(blobs, task, one) if one.state is not RoundState.OPEN else {}
        lost = dropped.get(one.number, ())
        before = {who: Reason.WITHDRAWN if (one.number, who) in gone else Reason.DAMAGED for who in lost}
        found[one.number] = before | rejected  # what was damaged may have come once more
    return found


def compliance(store: SpStore, blobs: Blobs, task: str) -> dict[str, Any]:
    """Rounds, with what became of each; people in the order they joined, with where each stands and was in which rounds."""
    people, rounds = store.participants(task), store.rounds(task)
    if len(people) > _MOST:
        raise QuotaExceeded(
            f"{len(people)} people have joined, and at most {_MOST} are listed: ask the platform's operator"
        )
    settings, out = store.task(task).opened.settings, left_out(store, blobs, task, rounds)
    leaves = {one.identity.who: _gone_at(one, people) for one in people}
    turnouts = []
    for round_ in rounds:
        number, end = round_.number, _end(round_, settings)
        uploads, drawn = {upload.who for upload in store.uploads(task, number)}, set(store.drawn(task, number))
        taken_back = {who for who, why in out[number].items() if why is Reason.WITHDRAWN} - uploads
        damaged = {who for who, why in out[number].items() if why is Reason.DAMAGED} - uploads
        if round_.state is RoundState.OPEN:  # it can be sent again
            damaged = set()
        could = {one.identity.who for one in people if _is_there(one, leaves[one.identity.who], end)}
        sent = uploads | damaged
        missing = (could & drawn if drawn else could) - sent - taken_back
        turnouts.append(_Turnout(round_, sent, taken_back, damaged, missing, drawn))
    replaced = {one.identity.who for one in people if one.replaced_by is not None}
    return {
        "rounds": [one.row(out[one.round.number], replaced) for one in turnouts],
        "people": [_person(one) | _rounds_of(one.identity.who, turnouts) for one in people],
    }


def _gone_at(one: StoredParticipant, people: Sequence[StoredParticipant]) -> float | None:
    """From when on nothing was expected of somebody, None: it is; of who has left nobody knows when."""
    if one.replaced_by is not None:
        return next((p.joined_at or 0.0 for p in people if p.identity.who == one.replaced_by), 0.0)
    if one.withdrawn_at is not None:
        return one.withdrawn_at
    return 0.0 if one.left or one.freed else None


def _is_there(one: StoredParticipant, leaves: float | None, end: float) -> bool:
    return (one.joined_at or 0.0) <= end and (leaves is None or leaves > end)


def _end(one: Round, settings: TaskSettings) -> float:
    """Until when it took uploads; `inf` while it does."""
    if one.state is RoundState.OPEN:
        return inf if one.closed_at is None else one.closed_at
    early = None if averages_again(settings) else one.closed_at
    return one.last_call(settings) if early is None else early


@dataclass(frozen=True)
class _Turnout:
    """One round's people, by what they did."""

    round: Round
    sent: set[str]
    taken_back: set[str]
    damaged: set[str]  # on SP
    missing: set[str]
    drawn: set[str]

    def row(self, out: Mapping[str, Reason], replaced: set[str]) -> dict[str, Any]:
        """`asked`: who has sent, also who took it back, and who is missing; a person with two devices once."""
        one, sent = self.round, self.sent | (self.taken_back - replaced)
        kept = {Reason.WITHDRAWN: self.taken_back - replaced, Reason.DAMAGED: self.damaged}
        reasons = Counter(str(why) for who, why in out.items() if who in kept.get(why, sent))
        return {
            "number": one.number,
            "opened": one.opened_at,
            "closed": one.closed_at,
            "state": str(one.state),
            "asked": len(sent | self.missing),
            "sent": len(sent),
            "missing": len(self.missing),
            "left_out": dict(sorted(reasons.items())),
            "void": one.void,
        }


def _rounds_of(who: str, turnouts: Sequence[_Turnout]) -> dict[str, list[int]]:
    """In which rounds somebody has sent, took that back, did not send though it could, and was drawn."""
    named = ("sent", "taken_back", "missing", "drawn")
    return {name: [one.round.number for one in turnouts if who in getattr(one, name)] for name in named}


def _person(one: StoredParticipant) -> dict[str, Any]:
    """`consent`, `agreed`: of a task with a consent text, its version and when SP got it."""
    version = None if one.consent is None else Consent.read(Envelope.parse(one.consent, Consent.kind)).version
    return {
        "who": one.identity.who,
        "state": one.state,
        "came": "listed" if one.recruited else "invited",
        "joined": one.joined_at,
        "consent": version,
        "agreed": one.consented_at,
        "withdrawn": one.withdrawn_at,
        "replaced_by": one.replaced_by,
    }
