"""`shares` through the roles: averages that follow from each other, and uploads that the servers leave out."""

import json
from dataclasses import replace

import numpy as np
import pytest

from crowdfl.errors import ChainBroken, FormatError, NotReady, UnknownParticipant, UploadRejected
from crowdfl.learning.models.learner import Update
from crowdfl.protocols.messages import Limits
from crowdfl.protocols.shares.profile import SharesParticipant
from crowdfl.protocols.shares.round.average import SharesPublication
from crowdfl.protocols.shares.round.upload import UpdateEncoder
from crowdfl.reasons import Reason
from crowdfl.roles.participant.event_words import event_words
from crowdfl.roles.sp.rounds import find_envelope, pack_envelopes
from crowdfl.simulation.federation import LocalFederation
from crowdfl.storage.blobs import FileBlobs
from tests.hosts import BUDGET, Desk, heard, raising

TASK = {"pay": "samples", "rounds": 3}


@pytest.fixture
def desk(tmp_path) -> Desk:
    """A task of three rounds, with four people and the money for it."""
    return Desk.funded(tmp_path, 4, **TASK)


def moved_by(distance, samples=3):
    """Training that moves every weight as far."""
    return lambda arrays, _settings, _number: ([array + distance for array in arrays], samples)


class Boundless(UpdateEncoder):
    """Of a phone that somebody has altered."""

    def encode(self, weights, base, samples):
        return 1000 * super().encode(weights, base, samples)


def play_round(desk, *, cheater=None):
    """Everyone takes part."""
    desk.run()
    for person in desk.crowd:
        if person is cheater:
            person.side._encoder = Boundless(person.side._shape)
        person.step(moved_by(0.5))
    desk.run()


def test_one_publication_serves_participants_and_requester(desk):
    """And every round's stays: nobody makes a second one at the end."""
    play_round(desk)
    play_round(desk)
    for number in (1, 2):
        own = desk.sp.publication(desk.task, number, desk.crowd[0].keys.who)
        assert desk.sp.publication(desk.task, number, None) == own
    desk.requester.order(desk.task, "cancel")
    desk.run()
    assert desk.sp.settlement._undelivered(desk.task) is None
    assert not [name for name in desk.sp.blobs.listing() if "/model/" in name]
    np.testing.assert_allclose(desk.requester.read(desk.task, 2).weights[0], desk.initial[0].flat[0] + 1.0)


def test_a_reader_goes_on_after_a_crash_between_average_and_chain(desk):
    """Whichever was written last, the next process reads what is missing and nothing twice."""
    play_round(desk)
    person = desk.crowd[0]
    person.step(moved_by(0.5))
    person.blobs.delete("rounds/1/chain")  # the average is there, the chain is not
    person._side = None
    for other in desk.crowd[1:]:
        other.step(moved_by(0.5))
    desk.run()
    person.step(moved_by(0.5))
    assert person.blobs.has("rounds/2/chain")
    person.blobs.delete("rounds/2/average")  # the chain is there, the average is not
    person._side = None
    assert person.step(moved_by(0.5)) is True
    assert person.blobs.has("rounds/2/average")
    assert person.blobs.has("rounds/3/receipt")


def test_a_reader_that_failed_on_the_way_reads_again_from_what_is_kept(desk, monkeypatch):
    """The disk was full after the average was read: what the side knows is not what is kept."""
    play_round(desk)
    person = desk.crowd[0]
    with monkeypatch.context() as patch:
        patch.setattr(FileBlobs, "put", raising(OSError(28, "full")))
        with pytest.raises(OSError, match="full"):
            person.read(1)
    assert person.read(1).weights[0] == pytest.approx(desk.initial[0].flat[0] + 0.5)


def test_an_average_may_be_read_again(desk):
    """From the beginning: the chain has one direction."""
    play_round(desk)
    play_round(desk)
    person, requester = desk.crowd[0], desk.requester
    first = person.read(1).weights[0]
    assert person.read(2).weights[0] == pytest.approx(first + 0.5)
    assert person.read(1).weights[0] == first
    assert requester.read(desk.task, 2).weights[0] == person.read(2).weights[0]
    assert requester.read(desk.task, 1).weights[0] == first


def test_a_broken_chain_keeps_a_phone_out_of_the_round_and_is_told_once(desk):
    """The platform may still show the right average; meanwhile nothing is trained on a model that nobody else has."""
    play_round(desk)
    name, person = desk.result(1, "average"), desk.crowd[0]
    kept = desk.sp.blobs.get(name)
    desk.sp.blobs.delete(name)
    altered = SharesPublication.from_bytes(kept, Limits.plain())
    desk.sp.blobs.put(name, replace(altered, sums=bytes(len(altered.sums))).to_bytes())
    said = heard(person)
    person.step(moved_by(0.5))
    person.step(moved_by(0.5))
    assert [what for what, _ in said] == ["average missing", "rewarded", "average missing"]
    assert not person.blobs.has("rounds/2/upload")
    desk.sp.blobs.delete(name)
    desk.sp.blobs.put(name, kept)
    assert person.step(moved_by(0.5)) is True
    assert person.blobs.has("rounds/2/receipt")


def test_one_who_joined_after_uploads_came_is_known_to_the_checks(desk):
    """SP has looked at uploads of the round before."""
    desk.run()
    desk.crowd[0].step(moved_by(0.5))
    (late,) = desk.invite(1)[4:]
    late.step(moved_by(0.5))
    assert late.blobs.has("rounds/1/receipt")


def test_who_is_left_out_is_told_why_and_the_others_are_paid(desk):
    """Once. What its device sends keeps the bounds, so it takes no further part: a server may have asked about it."""
    cheater = desk.crowd[0]
    play_round(desk, cheater=cheater)
    assert desk.sp.store.round(desk.task, 1).state == "rewarded"
    with pytest.raises(UploadRejected, match=Reason.OUT_OF_BOUNDS.words) as told:
        desk.sp.envelope(desk.task, 1, cheater.keys.who)
    assert told.value.reason is Reason.OUT_OF_BOUNDS
    kept = desk.result(1, "rejected")
    assert json.loads(desk.sp.blobs.get(kept)) == {cheater.keys.who: "out_of_bounds"}
    said = heard(cheater)
    cheater.step(moved_by(0.5))
    cheater.step(moved_by(0.5))
    assert [what for what, _ in said] == ["upload rejected", "stopped", "read"]
    assert said[0][1] == {"round": 1, "why": Reason.OUT_OF_BOUNDS}
    assert "takes no further part" in event_words(*said[1])
    assert cheater.blobs.get("rounds/1/no-reward") == b"out_of_bounds"
    assert cheater.rewards() == {}
    assert desk.crowd[1].open_reward(1) == BUDGET // 3


def test_a_platform_that_says_so_against_the_average_is_not_believed(desk):
    """CSP's signed word is in the average: a reward that only the platform denies stays owed."""
    play_round(desk)
    person, name = desk.crowd[0], desk.result(1, "rewards")
    kept, others = desk.sp.blobs.get(name), [one.keys.who for one in desk.crowd[1:]]
    desk.sp.blobs.delete(name)
    desk.sp.blobs.put(name, pack_envelopes({who: find_envelope(kept, who) for who in others}))
    said = heard(person)
    person.step(moved_by(0.5))
    assert [what for what, _ in said] == ["read", "reward missing", "trained", "uploaded"]
    assert not person.blobs.has("rounds/1/no-reward")
    desk.sp.blobs.delete(name)
    desk.sp.blobs.put(name, kept)
    assert person.step(moved_by(0.5)) is True
    assert person.rewards() == {1: BUDGET // 4}


def test_a_platform_that_knows_nobody_against_the_average_is_not_believed(desk, monkeypatch):
    play_round(desk)
    person = desk.crowd[0]
    with monkeypatch.context() as lying:
        lying.setattr(person.sp, "reward", raising(UnknownParticipant("was not averaged in round 1")))
        person.step(moved_by(0.5))
    assert not person.blobs.has("rounds/1/no-reward")
    assert person.step(moved_by(0.5)) is True
    assert person.rewards() == {1: BUDGET // 4}


def test_whoever_was_not_in_a_round_is_told_of_no_rejection(desk, monkeypatch):
    """A profile may say of its average that somebody is not in it."""
    play_round(desk)
    (late,) = desk.invite(1)[4:]
    monkeypatch.setattr(SharesParticipant, "read", not_in_it(SharesParticipant.read))
    said = heard(late)
    late.step(moved_by(0.5))
    assert [what for what, _ in said] == ["read", "trained", "uploaded"]


@pytest.mark.parametrize("wrong", ["out_of_bound", Reason.OUT_OF_BOUNDS.words])
def test_a_file_of_who_was_left_out_with_anything_but_codes_is_refused(desk, wrong):
    play_round(desk, cheater=desk.crowd[0])
    name = desk.result(1, "rejected")
    desk.sp.blobs.delete(name)
    desk.sp.blobs.put(name, json.dumps({desk.crowd[0].keys.who: wrong}).encode())
    with pytest.raises(FormatError):
        desk.sp.rejected(desk.task, 1)


def not_in_it(read):
    return lambda *args: replace(read(*args), standing=Reason.NOT_PASSED_ON)


@pytest.mark.parametrize("shown", [True, False])
def test_who_is_left_out_of_the_last_round_is_told_by_its_record(tmp_path, monkeypatch, shown):
    """Without it SP alone says why, and gives no reward up for anybody: the reward is waited for."""
    desk = Desk.funded(tmp_path, 4, **TASK | {"rounds": 1})
    person = desk.crowd[0]
    play_round(desk, cheater=person)
    said = heard(person)
    with monkeypatch.context() as lying:
        if not shown:
            lying.setattr(person.sp, "average", raising(NotReady("not yet")))
        person.step(moved_by(0.5))
        if not shown:
            with pytest.raises(NotReady):
                person.claim()
    first = ["upload rejected", "stopped"] if shown else ["record missing", "reward missing"]
    assert [what for what, _ in said] == first
    assert Reason.OUT_OF_BOUNDS.words in said[-1][1]["why"]
    assert person.claim() == 0
    assert person.blobs.has("rounds/1/no-reward")


def test_a_round_without_payment_leaves_out_too(tmp_path):
    """What the servers agreed on is in the average."""
    desk = Desk.funded(tmp_path, 4, **TASK | {"budget": None})
    play_round(desk, cheater=desk.crowd[2])
    said = heard(desk.crowd[2])
    desk.crowd[2].step(moved_by(0.5))
    assert ("upload rejected", {"round": 1, "why": Reason.OUT_OF_BOUNDS}) in said
    assert desk.crowd[0].read(1).weights[0] == pytest.approx(desk.initial[0].flat[0] + 0.5)


def test_an_update_that_was_scaled_down_is_told(tmp_path):
    desk = Desk.funded(tmp_path, 3, **TASK, max_norm=8**0.5)
    said = heard(desk.crowd[0])
    desk.crowd[0].step(moved_by(4.0))
    assert said[0] == ("trained", {"round": 1, "samples": 3, "clipped": 0, "scaled": 0.25})


def test_a_reader_does_not_follow_what_another_platform_shows(desk):
    """The requester compares each average with the chain that it has read."""
    play_round(desk)
    play_round(desk)
    desk.requester.read(desk.task, 1)
    name = desk.result(2, "average")
    first = desk.sp.blobs.get(desk.result(1, "average"))
    desk.sp.blobs.delete(name)
    desk.sp.blobs.put(name, first)
    with pytest.raises(ChainBroken):
        desk.requester.read(desk.task, 2)


def test_nothing_is_read_before_a_round_is_rewarded(desk):
    desk.run()
    with pytest.raises(NotReady):
        desk.requester.read(desk.task, 1)


def test_all_parties_in_one_process_follow_the_chain():
    """Whoever did not read a round catches up when it encrypts for the next."""
    federation = LocalFederation(max_participants=5, max_samples=9, rounds=4)
    model = np.zeros(2)
    for number in range(1, 4):
        people = [f"p{i}" for i in range(number, number + 3)]  # somebody new in every round
        updates = {who: Update([model + 0.5], 3) for who in people}
        result = federation.round(updates, final=number == 3)
        model = result.average[0]
        assert model[0] == pytest.approx(number * 0.5)


def test_in_one_process_the_result_says_who_was_left_out(monkeypatch):
    """By the caller's own names; they earn nothing, and the rest share the budget."""
    federation, encode = LocalFederation(max_participants=5, rounds=2, budget="9.00"), UpdateEncoder.encode
    monkeypatch.setattr(UpdateEncoder, "encode", lambda *given: encode(*given) * (1000 if given[-1] == 4 else 1))
    samples = {"a": 3, "b": 4, "c": 3, "d": 3}
    result = federation.round({who: Update([np.full(2, 0.5)], count) for who, count in samples.items()})
    assert result.rejected == {"b": Reason.OUT_OF_BOUNDS.words}
    assert result.rewards == {"a": 3, "b": 0, "c": 3, "d": 3}
    assert result.average[0][0] == pytest.approx(0.5)
