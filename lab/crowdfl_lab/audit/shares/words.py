"""Attacks on `shares` by an SP that says one thing of an upload while CSP signs another.

The roles are the real ones, with real stores; SP is the deviating one, at the wire and in its half of the protocol.
"""

from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from typing import Any, cast

import numpy as np

from crowdfl.crypto.compute import Threads
from crowdfl.crypto.long_bytes import Long
from crowdfl.documents.signed import Definition
from crowdfl.errors import CrowdFLError, RoundEnded, TooLate
from crowdfl.learning.models.shape import ModelShape
from crowdfl.protocols.exchange import Reply
from crowdfl.protocols.messages import Limits, Message
from crowdfl.protocols.profile import TaskSpec, Tools
from crowdfl.protocols.shares.circuits.lanes import opened
from crowdfl.protocols.shares.dealing.keys import SharesSpBundle
from crowdfl.protocols.shares.profile import SharesProfile
from crowdfl.protocols.shares.round.csp import SharesCsp
from crowdfl.protocols.shares.round.csp_records import MOST_UNSHOWN
from crowdfl.protocols.shares.round.ends import EndRequest, RoundEnd
from crowdfl.protocols.shares.round.manifest import RoundManifest, SpConversation, StepRequest
from crowdfl.protocols.shares.round.steps import shown_in
from crowdfl.protocols.shares.shape import SharesShape
from crowdfl.reasons import Reason
from crowdfl.roles.participant import participant as participant_module
from crowdfl.roles.participant.evidence import holds_receipt
from crowdfl.roles.participant.participant import Participant
from crowdfl.roles.ports import ManualClock
from crowdfl.settings import TaskSettings, to_millionths
from crowdfl.simulation.host import CSP, PEOPLE, SP, Call, Deliver, Host, Wire
from crowdfl_lab.audit.finding import SHARES, WRONG_GUESSES, Attack, Finding, Measure, difference
from crowdfl_lab.audit.shares.deviating_round import CHECK, LANES, TamperedSp, added_to, switched, weakened

_SIZE, _CROWD, _VICTIM = 8, 5, "p2"
_PATTERN = (1, 0, 1, 0)  # in which rounds the victim's update is long
_SHORT, _LONG, _BETWEEN = 0.5, 2.0, 1.25
_BUDGET = "10.00"
_LATER = 10.0**6  # seconds: whoever has not sent is waited for no more
_LOST = Measure[float](
    difference, "millionths that a person has earned by CSP's record, and was not paid; blind: all is paid"
)
_BELIEVING = "shares, a phone that believes SP"


class _Asking(TamperedSp):
    """SP that moves the bound of one person's length."""

    whom = ""

    def _begun(self, talk: SpConversation, manifest: RoundManifest) -> Generator[Long, Reply, Any]:
        lanes: list[bytes] = []
        widths, ring, names = self._shape.widths, self._shape.ring, manifest.names

        def tamper(step: int, message: bytes) -> bytes:
            if step == LANES:
                lanes.append(message)
            if step != CHECK or not message or self.whom not in names:
                return message
            length = len(names) * widths.lanes * ring.bytes
            own, other = (ring.decode(one[:length]).reshape(len(names), -1) for one in lanes)
            kept = opened(widths, list(range(len(names))), own, other).kept
            shift = kept * round(_BETWEEN * widths.unit) ** 2 - kept * widths.K
            return added_to(message, names.index(self.whom) * widths.R // 8, widths.R, shift)

        self.tamper = tamper
        return (yield from super()._begun(talk, manifest))


def _asking(_profile: SharesProfile, spec: TaskSpec, bundle: bytes, tools: Tools) -> _Asking:
    return _Asking(tools.party("SP"), SharesShape(spec), SharesSpBundle.from_bytes(bundle, Limits.plain()))


class Crowd:
    """A task of a few people whose platform lies as its wire says."""

    def __init__(self, wire: Wire, rounds: int, **settings: Any) -> None:  # noqa: ANN401 -- settings
        one = Threads(1)
        self.host = Host(Tools(one), wire=wire)
        bounds = {"weighting": "equal", "max_norm": 3.0, "clip": 3.0, "decimals": 3, "lanes": 128, "rounds": rounds}
        people = {"min_participants": _CROWD - 1, "max_participants": _CROWD}
        chosen = TaskSettings.of(profile=SHARES, **bounds, **people, **settings)
        shape, initial = ModelShape.of({"w": np.zeros(_SIZE)}), [np.zeros(_SIZE)]
        self.task = self.host.create(Definition("t", "t", "t", shape, chosen, 2 * 10**9, {}), initial)
        self.people = {f"p{place}": self.host.join(self.task, f"p{place}") for place in range(_CROWD)}
        if chosen.budget is not None:
            self.host.requester.fund(self.task, rounds * to_millionths(chosen.budget), "all")
        self.host.run()

    @property
    def csp_side(self) -> SharesCsp:
        return cast(SharesCsp, self.host.csp._sides[self.task])

    @property
    def victim(self) -> Participant:
        return self.people[_VICTIM]

    def play(self, length: float = _SHORT) -> None:
        """Everyone reads what there is, and takes part in a round in which the victim moves one weight so far."""
        for place, (name, person) in enumerate(self.people.items()):
            moved = np.eye(_SIZE)[place] * (length if name == _VICTIM else _SHORT)
            person.step(lambda base, *_, moved=moved: ([base[0] + moved], 1))
        cast(ManualClock, self.host.clock).time += _LATER
        self.host.run()


def denying(call: Call, deliver: Deliver) -> Any:  # noqa: ANN401
    """SP takes the victim's upload, and says that it came too late."""
    reply = deliver()
    if (call.sender, call.receiver, call.name) == (f"{PEOPLE}{_VICTIM}", SP, "send"):
        raise TooLate("the round has closed")
    return reply


def deleting(call: Call, deliver: Deliver) -> Any:  # noqa: ANN401
    """SP says that it has deleted what a person withdraws, and does not."""
    if (call.receiver, call.name) == (SP, "leave") and call.named.get("withdraw"):
        return {"deleted": [1], "standing": []}
    return deliver()


def _believing() -> tuple[tuple[type, str, Callable[..., Any]], ...]:
    """What a phone is that reads its record only with a receipt, and stays away from it once it has left."""
    heed = Participant._heed

    def receipt_first(phone: Participant, number: int, standing: Reason | None) -> None:
        if standing is not None and holds_receipt(phone.blobs, number):
            heed(phone, number, standing)

    def by_receipt(phone: Participant, number: int) -> bool:
        return holds_receipt(phone.blobs, number)

    return (
        (Participant, "_heed", receipt_first),
        (Participant, "has_earned", by_receipt),
        (Participant, "_has_words", lambda *_, **__: True),
        (Participant, "_step_left", lambda *_: False),
    )


def attack_denied_bits() -> Iterator[Finding]:
    """SP takes an upload, denies it, and has it judged with a bound of its own: after the first rejection."""
    title = "whether an update is long, by SP that says it came too late, and has it judged: after the first rejection"
    attack = Attack("denied bits", "new", title, (SP.upper(),), WRONG_GUESSES)
    for subject in (_BELIEVING, SHARES):
        with weakened(subject, *_believing()), switched(SharesProfile, "sp", _asking):
            crowd = Crowd(denying, len(_PATTERN) + 1)
            with switched(_Asking, "whom", crowd.victim.keys.who):
                told = [_rejected(crowd, number, long) for number, long in enumerate(_PATTERN, start=1)]
        later = list(zip(told, _PATTERN, strict=True))[1:]
        wrong = sum(0.5 if guess is None else guess != bool(long) for guess, long in later) / len(later)
        seen = sum(guess is not None for guess, _ in later)
        note = "the phone has stopped, and told its owner" if crowd.victim.blobs.has("stopped") else "the phone goes on"
        yield attack.score(subject, wrong, 0.5, 0.0, f"{seen} of {len(later)} bits", note)


def _rejected(crowd: Crowd, number: int, long: int) -> bool | None:
    """By CSP's record; None where nothing of the victim's was there."""
    who, host = crowd.victim.keys.who, crowd.host
    crowd.play(_LONG if long else _SHORT)
    sent = any(upload.who == who for upload in host.sp.store.uploads(crowd.task, number))
    return who in host.sp.rejected(crowd.task, number) if sent else None


class _Forgetful:
    """CSP that looks at the bits of a round, fails, and signs that it has shown nothing."""

    def __init__(self) -> None:
        self.crowd: Crowd | None = None

    def __call__(self, call: Call, deliver: Deliver) -> Any:  # noqa: ANN401
        reply = deliver()
        if self.crowd is None or (call.receiver, call.name) != (CSP, "answer"):
            return reply
        task, request, side = self.crowd.task, call.arguments[1], self.crowd.csp_side
        kind = Message.kind_of(request)
        if kind == StepRequest.kind:
            step = StepRequest.from_bytes(request, Limits.plain(len(request))).step
            if step == shown_in(side._shape):
                raise RoundEnded("something went wrong")
        if kind != EndRequest.kind:
            return reply
        end = RoundEnd.from_bytes(reply, Limits.plain(len(reply)))
        return RoundEnd.of(task, end.number, (), {}).sign(side._keys.signing).to_bytes()


def attack_forgotten_bits() -> Iterator[Finding]:
    """CSP fails once it has seen the bits, and its end of the round names nobody: after three such rounds."""
    title = (
        "whether an update is long, by CSP that fails once it has looked, and forgets that: from the fourth round on"
    )
    attack = Attack("forgotten bits", "new", title, (CSP.upper(),), WRONG_GUESSES)
    later = len(_PATTERN)
    for subject in ("shares, a phone that believes CSP's end alone", SHARES):
        believing = subject != SHARES
        with switched(participant_module, "holds_receipt", (lambda *_: False) if believing else holds_receipt):
            wire = _Forgetful()
            wire.crowd = crowd = Crowd(wire, MOST_UNSHOWN + later)
            told = [_looked_at(crowd, number) for number in range(1, MOST_UNSHOWN + later + 1)]
        seen = sum(told[MOST_UNSHOWN:])
        note = "what it sees of each is `one bit`" if seen else "the phone has stopped, and told its owner"
        yield attack.score(subject, (later - seen) / later / 2, 0.5, 0.0, f"{seen} of {later} bits", note)


def _looked_at(crowd: Crowd, number: int) -> bool:
    """Whether the victim has sent something that CSP can ask about."""
    crowd.play()
    return any(upload.who == crowd.victim.keys.who for upload in crowd.host.sp.store.uploads(crowd.task, number))


def attack_used_unpaid() -> Iterator[Finding]:
    """SP denies a receipt, and averages the upload."""
    yield from _unpaid(
        "used and denied", "the pay of an upload that SP said came too late, and averaged", denying, withdraws=False
    )


def attack_used_deleted() -> Iterator[Finding]:
    """SP says that a withdrawn upload is deleted, and averages it."""
    yield from _unpaid(
        "used and deleted", "the pay of an upload that SP said to have deleted, and averaged", deleting, withdraws=True
    )


def _unpaid(name: str, title: str, wire: Wire, *, withdraws: bool) -> Iterator[Finding]:
    attack = Attack(name, "new", title, (SP.upper(),), _LOST)
    earned = to_millionths(_BUDGET) // _CROWD
    for subject in (_BELIEVING, SHARES):
        with weakened(subject, *_believing()):
            crowd = Crowd(wire, 1, budget=_BUDGET, pay="equal")
            person = crowd.victim
            if withdraws:
                person.step(lambda base, *_: ([base[0] + 0.1], 1))
                person.leave(withdraw=True)
            crowd.play()
            paid = 0
            with suppress(CrowdFLError):
                paid = person.claim()
        lost, differs = earned - paid, bool(person.evidence.differences())
        note = "the owner was told, and holds both words" if differs else "the owner was told nothing"
        yield attack.score(subject, float(lost), 0.0, float(earned), f"{lost} of {earned} millionths", note)
