"""A server that dies before or after any exchange goes on with the same bytes: what was kept is all it needs."""

from dataclasses import replace

import pytest

from crowdfl.errors import BaseSpent
from crowdfl.protocols.exchange import ask_directly, run_exchange
from crowdfl.protocols.messages import Limits
from crowdfl.protocols.shares.round.sp import SharesSpRound, SharesSpTask
from tests.protocols.shares.parties import NOISY, PAYING, UNCHECKED, Parties, Played

pytestmark = pytest.mark.usefixtures("seals")
SAMPLES, DISTANCE = PAYING | {"pay": "samples"}, PAYING | {"pay": "distance"}
KINDS = {"no checks": (UNCHECKED, 2), "checks": ({}, 6), "equal": (PAYING, 6), "samples": (SAMPLES, 6)}
KINDS |= {"noise": (NOISY | UNCHECKED, 2), "distance": (DISTANCE, 14)}
EVERY = [(kind, step) for kind, (_, count) in KINDS.items() for step in range(1, count + 1)]
every_step = pytest.mark.parametrize(
    ("kind", "step"),
    [
        pytest.param(kind, step, id=f"{kind}-{step}", marks=[pytest.mark.second] if kind == "distance" else [])
        for kind, step in EVERY
    ],
)


class Died(Exception):
    """A process is gone."""


class Recorded:
    """The second round of a task, after an honest first: uploads, what both servers had kept before it, what came of it."""

    def __init__(self, settings):
        self.parties = parties = Parties(settings=settings)
        parties.read(1, parties.play(1, parties.encrypt(1, parties.models())))
        self.uploads = parties.encrypt(2, parties.models(2))
        self.left, self.records = parties.left, parties.csp.records.copy()
        parties.asked.clear()
        self.played = parties.play(2, self.uploads)
        self.requests = list(parties.asked)
        self.chain = parties.requester.chain()

    def again(self):
        """As before the round, with the same coins to be drawn; but CSP masks its part of the sum afresh."""
        self.parties.left = self.left
        self.parties.csp = self.parties.fresh_csp(self.records.copy())
        self.parties.asked.clear()
        return self.parties

    def check(self, played):
        """CSP was asked the same and nothing else; whoever reads it has the same model, and whoever was paid the same pay."""
        assert set(self.parties.asked) <= set(self.requests)
        assert self.read(played) == self.read(self.played)

    def read(self, played):
        parties = self.parties
        parties.requester.resume(self.chain, parties.initial)
        average = parties.requester.read(played.publication, 2)
        noisy = parties.spec.settings.epsilon is not None  # CSP's is drawn anew
        rewards = parties.rewards(2, played) if parties.shape.payment else {}
        return None if noisy else average.weights.tolist(), rewards


class Rounds(dict):
    def __missing__(self, kind):
        self[kind] = Recorded(KINDS[kind][0])
        return self[kind]


@pytest.fixture(scope="module")
def rounds():
    return Rounds()


class Link:
    """SP's link to CSP, as the role has it: every reply is kept before it is used. It dies once."""

    def __init__(self, parties, step, *, answered):
        self.parties, self.step, self.answered, self.kept, self.count = parties, step, answered, {}, 0

    def ask(self, request):
        if request in self.kept:
            return lambda: self.kept[request]
        self.count += 1
        if self.count == self.step:
            if self.answered:
                self.parties.ask(request)
            raise Died
        self.kept[request] = self.parties.ask(request)()
        return lambda: self.kept[request]


@every_step
@pytest.mark.parametrize("answered", [False, True], ids=["before", "after"])
def test_sp_dies_around_an_exchange(rounds, kind, step, answered):
    """Its next process has the uploads, its seed, and the replies that were kept."""
    recorded = rounds[kind]
    parties = recorded.again()
    link = Link(parties, step, answered=answered)
    with pytest.raises(Died):
        parties.play(2, recorded.uploads, link.ask)
    recorded.check(parties.play(2, recorded.uploads, link.ask))


@every_step
@pytest.mark.parametrize("kept", [False, True], ids=["before its answer is kept", "after"])
def test_csp_dies_around_an_answer(rounds, kind, step, kept):
    """Its next process finds whose the step is, and its coins; an answer that was not kept never left, and is made again."""
    recorded = rounds[kind]
    parties = recorded.again()
    asked = []

    def ask(request):
        asked.append(request)
        if len(asked) == step:
            records = parties.csp.records if kept else parties.csp.reserved(request).records
            first = parties.csp.answer(request)
            parties.csp = parties.fresh_csp(records)
            assert parties.csp.answer(request) == first or (not kept and step == KINDS[kind][1])
        return ask_directly(parties.csp.answer)(request)

    parties.asked = asked
    recorded.check(parties.play(2, recorded.uploads, ask))


def test_what_sp_has_sealed_is_drawn_once():
    """Sealing the same again gives other bytes: a process that dies before its part has left finds it where it was kept."""
    parties = Parties(settings=UNCHECKED)
    uploads, offered = parties.encrypt(1, parties.models()), []

    def ask(request):
        offered.append(request)
        if len(offered) == 2:
            raise Died
        return ask_directly(parties.csp.answer)(request)

    with pytest.raises(Died):
        parties.play(1, uploads, ask)
    died = list(offered)
    parties.read(1, parties.play(1, uploads, ask))
    assert offered[2:] == died


@pytest.mark.parametrize("kind", KINDS)
def test_every_answer_by_another_process(rounds, kind):
    """Several CSP processes on one store: none has seen the round before, each goes on with it."""
    recorded = rounds[kind]
    parties = recorded.again()

    def ask(request):
        parties.csp = parties.fresh_csp(parties.csp.records)
        return parties.ask(request)

    played = parties.play(2, recorded.uploads, ask)
    recorded.check(played)


@pytest.mark.parametrize("kind", ["samples", "distance"])
def test_sp_publishes_in_another_process_than_it_rewards(rounds, kind):
    """The publication's process goes over all the replies again, and hands out the same envelopes."""
    recorded = rounds[kind]
    parties = recorded.again()
    link = Link(parties, 0, answered=False)
    first, second = parties.new_sp(2), parties.new_sp(2)
    first.add_all(recorded.uploads)
    run_exchange(first.reward(parties.shape.payment), link.ask)
    second.record = first.record
    second.add_all(recorded.uploads)
    run_exchange(second.publish(final=False), link.ask)
    assert second.envelopes() == first.envelopes()
    recorded.check(Played(second.publication(), second.envelopes(), {}))


def test_uploads_in_any_order_and_read_again_from_elsewhere_give_the_same(rounds):
    recorded = rounds["samples"]
    parties = recorded.again()
    sp = parties.new_sp(2)
    for who in reversed(recorded.uploads):
        sp.add_stored("", {who: who}, recorded.uploads.__getitem__)
    run_exchange(sp.publish(final=False), parties.ask)
    recorded.check(Played(sp.publication(), sp.envelopes(), {}))


def test_a_base_is_spent_with_the_part_that_was_sent_or_not_at_all():
    """Both are in the record when the sum leaves, and neither before; a record that has lost the part sends no second one."""
    parties = Parties(settings=UNCHECKED)
    uploads, seen = parties.encrypt(1, parties.models()), []

    def ask(request):
        sent = SharesSpTask.from_bytes(parties.records[0], Limits.plain()).rounds if parties.records[0] else ()
        seen.append((sent, SharesSpRound.from_bytes(parties.records[1], Limits.plain()).part))
        return parties.ask(request)

    parties.play(1, uploads, ask)
    assert [(sent, bool(part)) for sent, part in seen] == [((), False), ((1,), True)]
    kept = SharesSpRound.from_bytes(parties.records[1], Limits.plain())
    parties.records[1], parties.left = replace(kept, part=b"").to_bytes(), None
    with pytest.raises(BaseSpent):
        parties.play(1, uploads)
