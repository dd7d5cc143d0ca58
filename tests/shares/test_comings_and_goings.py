"""Who is late, away, new or out of bounds in a `shares` task: what the others get stays what it should be."""

import json

import numpy as np
import pytest

from crowdfl.errors import NothingToContribute, UploadRejected
from tests.shares.crowd import BUDGET, Crowd, along, next_model

THREE = {"0": 3, "1": 4, "2": 5}
FOUR = THREE | {"3": 6}
NOISE = [10**6] * 8  # units: two hundred times what the norm bound allows


def refusals(crowd: Crowd, who: str, number: int) -> bytes:
    """Why a person's upload was not taken; empty if it was."""
    blobs = crowd.people[who].blobs
    return blobs.get(f"rounds/{number}/refused") if blobs.has(f"rounds/{number}/refused") else b""


def nothing(*_: object) -> tuple[list[np.ndarray], int]:
    raise NothingToContribute("no data today")


@pytest.mark.parametrize("strategy", [pytest.param("discard", marks=pytest.mark.second), "retransmit"])
def test_who_comes_late_is_counted_or_left_out_and_reads_the_average_all_the_same(strategy: str):
    """The next round has everyone again, on the same model."""
    crowd = Crowd(4, strategy=strategy)
    changes = along(1, [0.5, 0.25, 0.75, 1.0])
    crowd.train(1, {who: changes[who] for who in THREE}, THREE)
    crowd.clock.time += crowd.settings.window + 1
    crowd.send("3", 1, changes["3"], 6)
    counted = FOUR if strategy == "retransmit" else THREE
    assert bool(refusals(crowd, "3", 1)) == (strategy == "discard")
    crowd.everyone_came()
    first = next_model(crowd.start(), {who: changes[who] for who in counted}, counted)
    assert crowd.units(1) == first
    assert crowd.rewards(1, list(counted)) == [BUDGET // len(counted)] * len(counted)
    standing = crowd.people["3"].read(1).standing
    assert (standing is None) == (strategy == "retransmit")
    changes = along(4, [0.5, 0.25, 0.75, 1.0])
    crowd.train(2, changes, FOUR)
    crowd.run()
    assert crowd.units(2) == next_model(first, changes, FOUR)


def test_whoever_missed_averages_or_joins_late_replays_the_chain():
    """One stays away for two rounds, one joins then; both upload to the model of everyone else, and so does the requester."""
    crowd = Crowd(4, rounds=4)
    base = crowd.start()
    for number in (1, 2):
        changes = along(number, [0.5, 0.25, 0.75])
        crowd.train(number, changes, THREE)
        crowd.everyone_came()
        base = next_model(base, changes, THREE)
    crowd.join(crowd.task, "4")
    everyone = FOUR | {"4": 1}
    changes = along(6, [0.5, 0.25, 0.75, 0.125, 1.0])
    crowd.train(3, changes, everyone)
    crowd.run()
    base = next_model(base, changes, everyone)
    assert crowd.states[:3] == ["rewarded"] * 3
    assert crowd.units(3) == base
    for who in everyone:
        assert [round(x * 1000) for x in crowd.people[who].read(3).weights] == base
    assert crowd.rewards(3, list(everyone)) == [BUDGET // len(everyone)] * len(everyone)
    assert crowd.units(2) != base  # one before, read again from the beginning
    assert crowd.units(3) == base


def test_an_early_cancel_leaves_the_requester_the_last_rewarded_round():
    """Its publication was made for everyone, and the one that was under way is given up."""
    crowd, changes = Crowd(3), along(3, [0.5, 0.25, 0.75])
    crowd.train(1, changes, THREE)
    crowd.run()
    crowd.send("0", 2, changes["0"], 3)
    crowd.requester.order(crowd.task, "cancel")
    crowd.run()
    assert crowd.states == ["rewarded", "aborted"]
    model = [round(x * 1000) for x in crowd.requester.model(crowd.task)[0]]
    assert model == next_model(crowd.start(), changes, THREE)
    assert sum(person.claim() for person in crowd.people.values()) >= BUDGET - 6
    crowd.send("1", 2, changes["1"], 3)
    assert b"cancelled" in refusals(crowd, "1", 2)


def test_a_round_that_is_given_up_changes_nothing_and_the_next_starts_from_the_same_model():
    """Once because too many cheat, once because too few come; nobody is paid for either."""
    crowd = Crowd(4, rounds=4)
    changes = along(3, [0.5, 0.25, 0.75, 1.0])
    crowd.train(1, changes, FOUR)
    crowd.run()
    base = next_model(crowd.start(), changes, FOUR)
    crowd.train(2, along(5, [0.5, 0.25]), THREE)
    for who in ("2", "3"):
        crowd.cheat(who, 2, NOISE, 5)
    crowd.run()
    assert crowd.states[1] == "aborted"
    crowd.train(3, along(5, [0.5]), THREE)
    for _ in range(3):
        crowd.everyone_came()
    assert crowd.states[:3] == ["rewarded", "aborted", "aborted"]
    changes = along(6, [0.5, 0.25, 0.75, 1.0])
    crowd.train(4, changes, FOUR)
    crowd.run()
    assert crowd.units(4) == next_model(base, changes, FOUR)
    assert crowd.rewards(4, list(FOUR)) == [BUDGET // len(FOUR)] * len(FOUR)


def test_a_cheating_phone_is_left_out_alone_and_can_read_why():
    """The same average and the same rewards as if it had never come; the agent of the phone says so too."""
    crowd, events = Crowd(4), []
    changes = along(2, [0.5, 0.25, 0.75])
    crowd.train(1, changes, THREE)
    crowd.cheat("3", 1, NOISE, 5)
    crowd.run()
    assert crowd.states[0] == "rewarded"
    assert crowd.units(1) == next_model(crowd.start(), changes, THREE)
    assert crowd.rewards(1, list(THREE)) == [BUDGET // len(THREE)] * len(THREE)
    cheater = crowd.people["3"]
    cheater.on_event = lambda name, fields: events.append((name, dict(fields)))
    with pytest.raises(UploadRejected, match="out of bounds"):
        cheater.open_reward(1)
    cheater.step(nothing)
    rejections = [fields["why"] for name, fields in events if name == "upload rejected"]
    assert len(rejections) == 1
    assert "out of bounds" in rejections[0]
    rejected = json.loads(crowd.sp.blobs.get(f"{crowd.task}/rounds/1/rejected"))
    assert list(rejected) == [cheater.keys.who]
