"""The tables of steps of `hardened` and `paper`, walked: each declared field of each step in another size, sent first."""

from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

from crowdfl.crypto.paillier.vector import CipherVector, PartialVector
from crowdfl.errors import CrowdFLError, FormatError, LengthMismatch, LimitExceeded, OutOfTurn
from crowdfl.protocols.common.smul import products_in
from crowdfl.protocols.hardened import steps
from crowdfl.protocols.hardened.prirwd import distance_polynomials
from crowdfl.protocols.hardened.steps import BY_NAME, STEPS, KeyedFacts
from crowdfl.protocols.messages import Message
from crowdfl.protocols.paper import steps as paper
from tests.protocols.driving import SMALL_PAPER, converse, deal
from tests.protocols.recorded import REQUESTS, Recorded, record, short_messages

SUBJECT = [step.name for step in STEPS if step.name not in steps.ANY_TIME]


@pytest.fixture(scope="module")
def walk() -> Iterator[Recorded]:
    with short_messages():
        yield record("hidden")


@pytest.fixture(scope="module")
def places(walk) -> dict[str, int]:
    """Of the first message of each step."""
    names = [steps.name_of(walk.message(place)) for place in range(len(walk.requests))]
    return {name: names.index(name) for name in dict.fromkeys(names)}


def facts_of(walk: Recorded, place: int) -> KeyedFacts:
    return KeyedFacts(walk.sides.sp._shape, 3, getattr(walk.message(place), "start", 0))


def test_an_honest_round_is_what_the_table_says(walk, places):
    assert list(places) == SUBJECT
    for place in range(len(walk.requests)):
        message = walk.message(place)
        step, facts = BY_NAME[steps.name_of(message)], facts_of(walk, place)
        step.require_message(message, facts)
        assert len(walk.requests[place]) <= step.longest_request(facts)
        reply = walk.csp_at(place).answer(walk.requests[place])
        assert len(reply) <= step.longest_reply(facts) <= steps.longest_reply(facts.shape, message.kind)
        answer = next(cls for cls in subclasses(Message) if cls.kind == step.answer)
        step.require_answer(answer.from_bytes(reply, walk.sides.sp.party.limits(1000)), facts)


def subclasses(cls: type[Message]) -> Iterator[type[Message]]:
    for one in cls.__subclasses__():
        yield one
        yield from subclasses(one)


def test_messages_have_the_fields_that_are_declared():
    found = {cls.kind: cls for cls in subclasses(Message)}
    for step in (*STEPS, *paper.STEPS):
        for kind, parts in ((step.kind, step.request), (step.answer, step.reply)):
            assert [part.name for part in parts] == [one.name for one in fields(found[kind])], step.name


def test_distances_have_as_many_products_as_declared():
    """The formula of the table, beside the polynomials multiplied out."""
    for people in (1, 2, 3, 7):
        assert len(products_in(distance_polynomials(people, 5))) == 13 * people + 1


def resized(walk: Recorded, place: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every declared field, shorter and longer."""
    message = walk.message(place)
    for part in BY_NAME[steps.name_of(message)].request:
        value = getattr(message, part.name)
        if isinstance(value, CipherVector | PartialVector):
            blocks = value.block[1:], np.concatenate([value.block, value.block[:1]])
            for block, words in zip(blocks, ("fewer", "more"), strict=True):
                yield f"{part.name} {words}", {part.name: type(value)(value.public, block)}
        elif isinstance(value, bytes):
            yield f"{part.name} cut", {part.name: value[:-1]}
            yield f"{part.name} longer", {part.name: value + b"\0"}
        elif isinstance(value, tuple):
            yield f"{part.name} fewer", {part.name: value[1:]}
            yield f"{part.name} more", {part.name: (*value, value[0])}


def requires_refusal(walk: Recorded, place: int, request: bytes, *errors: type[CrowdFLError]) -> None:
    """Refused, nothing opened, and the honest request is answered as ever."""
    csp = walk.csp_at(place)
    with pytest.raises(errors):
        csp.answer(request)
    assert csp.records.records == walk.before[place].records
    assert csp.party.view.entries == []


@pytest.mark.parametrize("name", SUBJECT)
def test_a_field_of_another_size_is_refused(walk, places, name):
    place = places[name]
    for _, change in resized(walk, place):
        requires_refusal(walk, place, replace(walk.message(place), **change).to_bytes(), LengthMismatch)
    request = walk.requests[place]
    for wrong in (request[:-1], request + b"\0", request[:6]):
        requires_refusal(walk, place, wrong, FormatError, LimitExceeded)
    assert walk.csp_at(place).answer(request)


@pytest.mark.parametrize("name", SUBJECT[1:])
def test_a_step_of_a_round_that_has_not_begun_is_refused(walk, places, name):
    place = places[name]
    requires_refusal(walk, place, replace(walk.message(place), round_number=2).to_bytes(), OutOfTurn)
    for later in SUBJECT[SUBJECT.index(name) + 1 : -2]:
        requires_refusal(walk, place, walk.requests[places[later]], OutOfTurn)


def test_a_step_that_the_task_has_not_is_refused(walk, places):
    """A purpose or an audience that nobody has declared."""
    divide, opening = places["divide weights"], places[steps.open_to(1)]
    for place, change in ((divide, {"purpose": "others"}), (opening, {"audience": 3}), (opening, {"audience": 0})):
        requires_refusal(walk, place, replace(walk.message(place), **change).to_bytes(), OutOfTurn)


def test_every_request_is_in_the_table():
    assert {step.kind for step in STEPS if step.name not in steps.ANY_TIME} == set(REQUESTS)


def test_a_paper_round_is_what_its_table_says():
    sides, asked = deal(3, 2, **SMALL_PAPER), []
    for i, who in enumerate(sides.people):
        sides.sp.add_all({who: sides.upload([0.1, 0.2], 1 + i, who)})

    def answer(request: bytes) -> bytes:
        asked.append((request, sides.csp.answer(request)))
        return asked[-1][1]

    converse(sides.sp.publish(final=False), answer)
    converse(sides.sp.reward(1_000_000), answer)
    for who, envelope in sides.sp.envelopes().items():
        sides.people[who].open_reward(envelope, 1)
        answer(sides.sp.claim_request(sides.people[who].claim(), lambda envelope=envelope: {1: envelope}))
    asked = asked[:-2]  # one claim is enough
    facts = paper.PaperFacts(sides.sp.task, 3, claimed=1)
    assert len(asked) == len(paper.STEPS)
    kinds = {cls.kind: cls for cls in subclasses(Message)}
    for step, (request, reply) in zip(paper.STEPS, asked, strict=True):
        limits = sides.sp.party.limits(1000)
        step.require_message(kinds[step.kind].from_bytes(request, limits), facts)
        assert len(request) <= step.longest_request(facts)
        step.require_answer(kinds[step.answer].from_bytes(reply, limits), facts)
        assert len(reply) <= paper.longest_reply(sides.sp.task, step.kind)
