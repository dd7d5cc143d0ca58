"""The table of steps, walked: at each step of several rounds every kind of wrong message comes *first*.

A wrong message is refused by name and changes nothing, or it ends the round for good, or, where nobody can see that a share is
altered, it is the step's one message. In no case is there a second answer to a step.
"""

from collections.abc import Iterator
from dataclasses import fields, replace
from functools import cache
from typing import Any

import pytest

from crowdfl.errors import CrowdFLError, LengthMismatch, OutOfTurn, RoundEnded
from crowdfl.protocols.messages import Message
from crowdfl.protocols.shares.chain import sha256
from crowdfl.protocols.shares.round import steps
from crowdfl.protocols.shares.round.average import SumOffer
from crowdfl.protocols.shares.round.manifest import RoundManifest, RoundVerdict, StepReply, StepRequest
from crowdfl.protocols.shares.round.steps import MANIFEST, OFFER, SHOW, STEPS, CohortCourse, Facts, steps_of
from crowdfl.protocols.steps import StepForm
from tests.protocols.driving import Keeping, Wire
from tests.protocols.shares.parties import COUNTED_ONCE, HIDDEN, PAYING, UNCHECKED, Parties

pytestmark = pytest.mark.usefixtures("seals")
TASKS: dict[str, tuple[int, dict[str, Any]]] = {
    "no checks": (3, UNCHECKED),
    "equal weights": (4, COUNTED_ONCE),
    "counts and hidden rewards": (3, HIDDEN),
    "rewards by distance": (3, PAYING | {"pay": "distance", "rounds": 2}),
    "two cohorts": (5, COUNTED_ONCE | {"cohort": 3}),
    "a reference": (3, {"weighting": "equal", "reference": True, "lanes": 1024, "max_norm": 4.0, "rounds": 3}),
}
COUNTS = dict(zip(TASKS, (2, 6, 6, 14, 11, 8), strict=True))
LONG = {"rewards by distance", "a reference"}  # whose steps take longer
EVERY = [
    pytest.param(task, place, id=f"{task}-{place + 1}", marks=[pytest.mark.second] * (task in LONG))
    for task, count in COUNTS.items()
    for place in range(count)
]
every_step = pytest.mark.parametrize(("task", "place"), EVERY)
_TRIES = 5
MESSAGES: dict[int, type[Message]] = {54: RoundManifest, 65: SumOffer}


class Walk(Wire):
    """An honest round, and the step of each of its requests; after the last one too, what CSP has recorded."""

    def __init__(self, people: int, settings: dict[str, Any]) -> None:
        self.parties = parties = Parties(people, settings=settings)
        super().__init__(parties.csp)
        reference = parties.reference(1, parties.models()[parties.names[0]]) if "reference" in settings else None
        parties.play(1, parties.encrypt(1, parties.models()), self.ask, reference)
        self.before.append(parties.csp.records.copy())
        self.steps, self.facts = zip(*self.declared(), strict=True)

    def declared(self) -> Iterator[tuple[StepForm[Facts], Facts]]:
        """What the table says of a round of these cohorts, in which everyone is in."""
        manifests = [one for one in map(self.manifest, range(len(self.requests))) if one is not None]
        for manifest in manifests:
            listed = len(manifest.names)
            facts = Facts(self.parties.shape, listed, listed, self.parties.shape.widths.lanes, False, listed)
            yield from ((step, facts) for step in steps_of(facts) if step is not OFFER)
        everyone = sum(len(one.names) for one in manifests)
        yield OFFER, Facts(self.parties.shape, everyone, everyone, accepted=everyone)

    def message(self, place: int) -> StepRequest:
        return StepRequest.from_bytes(self.requests[place], self.parties.shape.limits(1 << 24))

    def manifest(self, place: int) -> RoundManifest | None:
        payload = self.message(place).payload
        is_one = payload[:4] == b"CFLM" and payload[5] == RoundManifest.kind
        return RoundManifest.from_bytes(payload, self.parties.shape.limits()) if is_one else None

    def csp_at(self, place: int) -> Keeping:
        """A process of CSP that has answered all requests before this one, and kept nothing but its records."""
        return self.parties.fresh_csp(self.before[place].copy())

    @property
    def is_whole(self) -> bool:
        """Whether every lane was kept: now and then a mask leaves a block of them out, and later messages are shorter."""
        payloads = ((self.message(place).payload, step, self.facts[place]) for place, step in enumerate(self.steps))
        sizes = (
            (len(data), sum(one.bytes_of(facts) for one in step.request))
            for data, step, facts in payloads
            if not step.kind
        )
        return all(sent == declared for sent, declared in sizes)


@cache
def walk_of(task: str) -> Walk:
    walks = (Walk(*TASKS[task]) for _ in range(_TRIES))
    return next((walk for walk in walks if walk.is_whole), None) or Walk(*TASKS[task])


@pytest.fixture
def walk(task: str) -> Walk:
    return walk_of(task)


@pytest.mark.parametrize("task", TASKS)
def test_an_honest_round_is_what_the_table_says(walk, task):
    """Each step, in its order, as long as declared; replies too."""
    assert len(walk.requests) == COUNTS[task] == len(walk.steps)
    for place, (step, facts) in enumerate(zip(walk.steps, walk.facts, strict=True)):
        payload = walk.message(place).payload
        if step.kind:
            step.require_message(MESSAGES[step.kind].from_bytes(payload, walk.parties.shape.limits()), facts)
            assert len(payload) <= step.longest_request(facts)
        else:
            step.require_payload(payload, facts)
        reply = StepReply.opened(sha256(walk.requests[place]), walk.replies[place])
        assert len(walk.replies[place]) <= steps.longest_answer(step, facts)
        assert step.answer or step.require_reply(reply.payload, facts) == reply.payload


def test_every_step_is_walked():
    """But for the one that no honest pair of servers takes."""
    walked = {step.name for task in TASKS for step in walk_of(task).steps}
    assert {step.name for step in STEPS} - walked == {"given up"}


def test_bits_are_shown_where_the_table_says():
    shown = {task: steps.shown_in(walk_of(task).parties.shape) for task in TASKS}
    assert shown == dict(zip(TASKS, (3, 5, 5, 5, 5, 7), strict=True))


# Wrong messages, each with what it is.


def flipped(data: bytes, place: int = 0) -> bytes:
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


def other(value: Any) -> Any:
    """Another value of the same length; None where there is none."""
    if isinstance(value, int):
        return value + 1
    if isinstance(value, str):
        return flipped(value.encode()).decode() if value else None
    if isinstance(value, tuple):
        return (other(value[0]), *value[1:]) if value else None
    return flipped(value, len(value) // 2) if value else None


def altered(walk: Walk, place: int) -> Iterator[tuple[str, bytes]]:
    """The payload with one declared field altered."""
    step, facts, payload = walk.steps[place], walk.facts[place], walk.message(place).payload
    if step.kind:
        message = MESSAGES[step.kind].from_bytes(payload, walk.parties.shape.limits())
        for part in step.request:
            changed = other(getattr(message, part.name))
            if changed is not None:
                yield part.name, replace(message, **{part.name: changed}).to_bytes()
        return
    start = 0
    for part in step.request:
        if part.bytes_of(facts):
            yield part.name, flipped(payload, start)
        start += part.bytes_of(facts)
    assert start == len(payload)


def sized(walk: Walk, place: int) -> Iterator[tuple[str, bytes]]:
    payload = walk.message(place).payload
    yield from {"cut": payload[:-1], "lengthened": payload + b"\0", "empty": b""}.items()
    step = walk.steps[place]
    if step.kind:  # a message is one again, with a field of another length, or a list with an entry less or more
        message = MESSAGES[step.kind].from_bytes(payload, walk.parties.shape.limits())
        for part in step.request:
            value = getattr(message, part.name)
            if isinstance(value, bytes):
                yield f"{part.name} longer", replace(message, **{part.name: value + b"\0"}).to_bytes()
            if isinstance(value, tuple) and part.name != "names":  # fewer people are another round, and a right one
                yield f"{part.name} fewer", replace(message, **{part.name: value[1:]}).to_bytes()
                yield f"{part.name} more", replace(message, **{part.name: (*value, *value[:1])}).to_bytes()


def misplaced(walk: Walk, place: int) -> Iterator[tuple[str, bytes]]:
    right = walk.message(place)
    yield "another transcript", replace(right, transcript=flipped(right.transcript)).to_bytes()
    yield "a step ahead", replace(right, step=right.step + 1).to_bytes()
    yield "a step behind", replace(right, step=right.step - 1).to_bytes()
    yield "another round", replace(right, round_number=2).to_bytes()
    yield "a round that there is none of", replace(right, round_number=99).to_bytes()
    if place + 1 < len(walk.requests):
        following = walk.message(place + 1).payload
        yield "the step after", walk.requests[place + 1]
        if len(following) != len(right.payload):  # else it is a share that nobody can tell from another
            yield "the payload after, here", replace(right, payload=following).to_bytes()


def outcome(csp: Keeping, request: bytes) -> "bytes | CrowdFLError":
    try:
        return csp.answer(request)
    except CrowdFLError as refusal:
        return refusal


def requires_end(walk: Walk, csp: Keeping, why: str) -> None:
    """The round is over, for every request of it, in the same words."""
    over = {str(outcome(csp, request)) for request in walk.requests}
    assert len(over) == 1, (why, over)
    assert isinstance(outcome(csp, walk.requests[-1]), RoundEnded), why


def requires_harmless(walk: Walk, csp: Keeping, place: int, why: str) -> None:
    """As if it had not come: the honest request is answered as ever. (The last answer has fresh seals.)"""
    reply = outcome(csp, walk.requests[place])
    assert isinstance(reply, bytes), (why, reply)
    assert reply == walk.replies[place] or walk.steps[place] is OFFER, why


def requires_refusal(walk: Walk, place: int, why: str, request: bytes) -> None:
    """A wrong message that comes first: refused without a trace, or the round's end. Never an answer."""
    csp = walk.csp_at(place)
    refusal = outcome(csp, request)
    assert isinstance(refusal, CrowdFLError), f"{why} is answered"
    if csp.records.records == walk.before[place].records:
        requires_harmless(walk, csp, place, why)
    else:
        requires_end(walk, csp, why)


@every_step
def test_a_message_out_of_its_place_is_refused(walk, task, place):
    for why, request in misplaced(walk, place):
        requires_refusal(walk, place, why, request)


@every_step
def test_a_message_of_another_size_is_refused(walk, task, place):
    for why, payload in sized(walk, place):
        requires_refusal(walk, place, why, replace(walk.message(place), payload=payload).to_bytes())


@every_step
def test_an_altered_field_is_refused_or_is_the_steps_one_message(walk, task, place):
    """What everybody has signed is refused. Bits that were committed to void the round, by CSP's signed word. An altered share
    is one that nobody can tell: it takes the place of the right one."""
    step = walk.steps[place]
    for name, payload in altered(walk, place):
        request = replace(walk.message(place), payload=payload).to_bytes()
        if step is MANIFEST:
            requires_refusal(walk, place, name, request)
            continue
        csp = walk.csp_at(place)
        reply = outcome(csp, request)
        assert isinstance(reply, bytes), (name, reply)
        assert csp.answer(request) == reply
        assert isinstance(outcome(csp, walk.requests[place]), CrowdFLError), name
        if step is SHOW:
            assert is_void_in(walk, place, StepReply.opened(sha256(request), reply).payload), name
            if MANIFEST not in walk.steps[place:]:  # the last cohort
                assert isinstance(outcome(csp, walk.requests[-1]), RoundEnded), name


def is_void_in(walk: Walk, place: int, shown: bytes) -> bool:
    """Whether the answer to `show` ends with CSP's word that the cohort is void; its own bits are not shown then."""
    length = sum(part.bytes_of(walk.facts[place]) for part in SHOW.request)
    verdict = RoundVerdict.from_bytes(shown[length:], walk.parties.shape.limits())
    return verdict.void is not None and shown[:length] == bytes(length)


@every_step
def test_a_request_that_was_answered_gets_its_answer_again_and_no_other(walk, task, place):
    """By the process that has answered it, and by the next one, which has the answer from its store."""
    csp = walk.csp_at(place)
    reply = csp.answer(walk.requests[place])
    assert csp.answer(walk.requests[place]) == reply
    for why, payload in (*altered(walk, place), *sized(walk, place)):
        again = outcome(csp, replace(walk.message(place), payload=payload).to_bytes())
        assert isinstance(again, CrowdFLError), why
    late = walk.csp_at(len(walk.requests))  # the round is through, and its answers are gone
    assert isinstance(outcome(late, walk.requests[place]), CrowdFLError)
    assert csp.answer(walk.requests[place]) == reply


# The table itself.


def test_messages_have_the_fields_that_are_declared():
    """In their order: a field that is in no table has no limit."""
    declared = {54: MANIFEST.request, 55: MANIFEST.reply, 65: OFFER.request, 58: OFFER.reply}
    declared |= {56: steps.VERDICT, 57: steps.RECORD, 59: steps.PUBLICATION, 53: steps.UPLOAD, 18: steps.ENVELOPE}
    declared |= {63: steps.LEFT}
    declared |= {one.kind: one.request for one in steps.BESIDE} | {one.answer: one.reply for one in steps.BESIDE}
    found = {cls.kind: cls for cls in subclasses(Message)}
    for kind, parts in declared.items():
        assert [part.name for part in parts] == [one.name for one in fields(found[kind])], found[kind]


def subclasses(cls: type[Message]) -> Iterator[type[Message]]:
    for one in cls.__subclasses__():
        yield one
        yield from subclasses(one)


def test_a_server_sends_nothing_that_is_not_the_next_step():
    """SP asserts it before a payload leaves; a cohort that is through has no further step."""
    facts = Facts(walk_of("equal weights").parties.shape, 4, 4)
    course = CohortCourse(facts)
    with pytest.raises(LengthMismatch, match="lanes has 3 bytes"):
        course.asked(b"abc")
    through = CohortCourse(Facts(walk_of("no checks").parties.shape, 4, 4))
    with pytest.raises(OutOfTurn, match="no further step"):
        through.asked(b"")
