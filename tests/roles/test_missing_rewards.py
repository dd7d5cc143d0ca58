"""One reward or average that the platform cannot show holds up nothing else, and nobody is left to guess what became of it."""

from pathlib import Path
from typing import Any

import pytest

from crowdfl.errors import (
    NotAuthenticated,
    RewardOutOfRange,
    ServiceUnavailable,
    UnknownParticipant,
    UploadRejected,
)
from crowdfl.roles.sp.rounds import find_envelope, pack_envelopes
from tests.hosts import HARDENED, Desk, heard, raising
from tests.roles.test_agent import Trainer

train = Trainer().train


def after_one_round(folder: Path, **settings: Any) -> Desk:
    """Round 1 rewarded, round 2 open, and nobody has read anything yet."""
    pay = {} if "profile" in settings else {"pay": "samples"}  # equal parts follow from CSP's record alone
    desk = Desk.funded(folder, 3, **pay | settings)
    for person in desk.crowd:
        person.step(train)
    desk.run()
    assert desk.states() == ["rewarded", "open"]
    return desk


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return after_one_round(tmp_path)


def finish(desk: Desk) -> None:
    for person in desk.crowd:
        person.step(train)
    desk.run()
    for person in desk.crowd:
        person.step(train)
    assert desk.state == "finished"


def lose(desk: Desk) -> bytes:
    """SP's file with the rewards of round 1, which is gone."""
    name = desk.result(1, "rewards")
    kept = desk.sp.blobs.get(name)
    desk.sp.blobs.delete(name)
    return kept


def test_a_missing_reward_keeps_nobody_from_the_next_round(desk: Desk):
    """It is told once, and looked for again at every look."""
    kept, person = lose(desk), desk.crowd[0]
    said = heard(person)
    assert person.step(train) is True
    assert person.step(train) is False
    assert [what for what, _ in said] == ["read", "reward missing", "trained", "uploaded"]
    desk.sp.blobs.put(desk.result(1, "rewards"), kept)
    assert person.step(train) is True
    assert said[-1][0] == "rewarded"


@pytest.mark.parametrize("damage", [b"\0", b"CFL"])
def test_a_damaged_reward_keeps_nobody_from_the_next_round(desk: Desk, damage: bytes):
    person, other = desk.crowd[:2]
    packed = lose(desk)
    envelopes = {one.keys.who: find_envelope(packed, one.keys.who) or b"" for one in desk.crowd}
    envelopes[person.keys.who] = damage
    desk.sp.blobs.put(desk.result(1, "rewards"), pack_envelopes(envelopes))
    said = heard(person)
    assert person.step(train) is True
    assert [what for what, _ in said] == ["read", "reward missing", "trained", "uploaded"]
    other.step(train)
    assert other.rewards()[1] > 0


def test_a_platform_that_fails_at_one_reward_alone_keeps_nobody_from_the_rest(desk: Desk):
    """As it does where its file cannot be read: the same answer for ever."""
    finish(desk)
    person = desk.new_participant(desk.task, "0")
    person.blobs.delete("rounds/2/reward")
    reward = type(desk.sp_link).reward

    def failing(task, number, keys):
        if number == 2:
            raise ServiceUnavailable("the service failed")
        return reward(desk.sp_link, task, number, keys)

    desk.sp_link.reward = failing
    said = heard(person)
    assert person.step(train) is False
    assert person.step(train) is False
    assert [what for what, _ in said] == ["reward missing"]
    assert person.claim() == person.rewards()[1] > 0
    desk.leave_to_claim(200.0)  # past half of the time to claim: it may be back at any moment
    assert person.claimed.waits(desk.sp.tasks.status(desk.task))
    desk.leave_to_claim(100.0)  # less than a quarter is left
    assert not person.claimed.waits(desk.sp.tasks.status(desk.task))


def test_a_refused_signature_at_a_reward_is_not_overlooked(desk: Desk):
    """It is not the reward that is wrong then."""
    desk.sp_link.reward = raising(NotAuthenticated("who?"))
    with pytest.raises(NotAuthenticated):
        desk.crowd[0].step(train)


@pytest.mark.parametrize("refusal", [RewardOutOfRange, UnknownParticipant, UploadRejected])
def test_the_platforms_word_that_there_is_no_reward_gives_nothing_up(desk: Desk, refusal: type[Exception]):
    """Whoever can read a reward finds that out alone; who was left out reads it in CSP's signed word."""
    person = desk.crowd[0]
    desk.sp_link.reward = raising(refusal("there is no reward"))
    said = heard(person)
    person.step(train)
    assert [what for what, _ in said if what.startswith("reward")] == ["reward missing"]
    del desk.sp_link.reward
    person.step(train)
    assert 1 in person.rewards()


def test_what_is_there_is_claimed_and_a_missing_reward_waited_for(desk: Desk):
    """Half of the time to claim; then the person is told. A claim of one round forfeits no other."""
    kept = lose(desk)
    finish(desk)
    person = desk.crowd[0]
    said = heard(person)
    assert person.claim() == person.rewards()[2] > 0
    desk.leave_to_claim(251.0)
    assert person.claimed.waits(desk.sp.tasks.status(desk.task))
    assert [what for what, _ in said] == ["claimed"]
    desk.leave_to_claim(249.0)
    assert not person.claimed.waits(desk.sp.tasks.status(desk.task))
    assert said[-1] == ("claiming without", {"rounds": [1], "why": "the platform does not show their rewards"})
    desk.sp.blobs.put(desk.result(1, "rewards"), kept)
    assert person.claim() == sum(person.rewards().values())
    assert sorted(person.claimed.answer.paid) == [1, 2]


def test_a_reward_that_comes_back_in_time_is_in_the_claim(desk: Desk):
    """Whoever was away for it reads it first."""
    kept = lose(desk)
    finish(desk)
    person = desk.crowd[0]
    assert person.claim() == person.rewards()[2]
    desk.sp.blobs.put(desk.result(1, "rewards"), kept)
    assert person.claim() == sum(person.rewards().values())
    assert sorted(person.rewards()) == [1, 2]


def test_whoever_cannot_read_the_record_of_a_round_stays_out_of_the_next(tmp_path: Path):
    """It comes with the average, of which no later one follows here; the platform may still show both."""
    desk = after_one_round(tmp_path, **HARDENED)
    name = desk.result(1, "average")
    kept = desk.sp.blobs.get(name)
    desk.sp.blobs.delete(name)
    desk.sp.blobs.put(name, b"CFLM not an average")
    person = desk.crowd[0]
    said = heard(person)
    assert person.step(train) is True
    assert [what for what, _ in said] == ["average missing", "rewarded", "record missing", "record missing"]
    desk.sp.blobs.delete(name)
    desk.sp.blobs.put(name, kept)
    assert person.step(train) is True
    assert [what for what, _ in said][4:] == ["read", "trained", "uploaded"]


def test_a_platform_that_is_away_is_not_trained_past(desk: Desk):
    """The average is there, only not now: what is trained waits for it."""
    desk.sp_link.average = raising(ServiceUnavailable("gone"))
    with pytest.raises(ServiceUnavailable):
        desk.crowd[0].step(lambda *_: pytest.fail("on an older model"))


def test_initial_weights_that_are_not_the_task_s_are_not_kept(tmp_path: Path):
    """Whatever answered: the next try may get the right ones."""
    desk = Desk(tmp_path)
    (person,) = desk.invite(1)
    desk.sp_link.initial_weights = lambda _task: b"<html>"
    with pytest.raises(Exception, match="initial weights are not those"):
        person.model()
    del desk.sp_link.initial_weights
    assert [array.shape for array in person.model()] == [(2, 3), (2,)]


def test_one_reward_for_all_is_found_without_a_list_of_them():
    packed = pack_envelopes(dict.fromkeys("abc", b"all"), 3)
    assert find_envelope(packed, "b") == b"all"
    assert len(pack_envelopes(dict.fromkeys(map(str, range(1000)), b"all"), 1000)) == len(packed)
    assert find_envelope(pack_envelopes({"a": b"all"}, 2), "b") is None
