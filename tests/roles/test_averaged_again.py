"""Section 5.2 of the paper in a campaign: averaged, held, averaged once more for who came late, published, rewarded."""

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crowdfl.errors import AlreadyCounted, NotReady, RoundNotOpen, TooLate
from crowdfl.roles.records import RoundState, TaskState
from crowdfl.roles.sp.ledger import ESCROW, REQUESTER, participant_account, round_account
from crowdfl.settings import UNTIL_PUBLISHED
from tests.hosts import BUDGET, INITIAL_MODEL, Desk, moved_by

AGAIN: dict[str, Any] = {"profile": "paper", "key_bits": 512, "mask_bits": 45, "late": UNTIL_PUBLISHED, "rounds": 2}
WINDOW, GRACE = 100.0, 100.0  # an average is held for a window more
MOVES, SAMPLES = (0.1, 0.2, 0.3, -0.4, 0.5), (1, 2, 3, 2, 4)
"""Of each person: how far it moves every weight of the model that it starts from, and on how many samples."""


def begun(folder: Path, people: int = 5, **settings: Any) -> Desk:
    return Desk.funded(folder, people, **(AGAIN | settings))


def send(desk: Desk, *places: int) -> None:
    for place in places:
        desk.crowd[place].step(moved_by(MOVES[place], SAMPLES[place]))


def oracle(*places: int) -> float:
    """By Eq. 3, of people who start from the same model."""
    total = sum(SAMPLES[place] for place in places)
    return sum(SAMPLES[place] * MOVES[place] for place in places) / total


def rewards(*places: int) -> list[float]:
    """Eq. 10, in the clear, with eps = 10^-L."""
    average, size = oracle(*places), 8
    weights = [SAMPLES[p] / (size * (MOVES[p] - average) ** 2 + 1e-3) for p in places]
    return [36.0 * weight / sum(weights) for weight in weights]


def moved(desk: Desk, place: int, number: int) -> np.ndarray:
    """How far the average of a round has moved from the initial model, weight by weight, as somebody reads it."""
    found = np.asarray(desk.crowd[place].read(number).model).reshape(-1)
    return found - np.concatenate([part.reshape(-1) for part in INITIAL_MODEL])


def state(desk: Desk) -> str:
    return desk.states()[-1]


def held(desk: Desk) -> list[str]:
    return [name for name in desk.sp.blobs.listing() if "/held/" in name]


def step(desk: Desk) -> str:
    """One step of SP's; the state that it left."""
    desk.sp.tick()
    return state(desk)


def test_a_late_upload_is_averaged_in_until_one_fixed_time(tmp_path: Path) -> None:
    desk = begun(tmp_path)
    send(desk, 0, 1, 2)
    desk.later(WINDOW)
    assert state(desk) == "held"
    first = held(desk)
    assert len(first) == 1
    with pytest.raises(NotReady):
        desk.crowd[0].read(1)
    send(desk, 3)
    desk.later(GRACE / 2)
    send(desk, 4)
    assert (state(desk), held(desk)) == ("held", first), "they are gathered: nothing is averaged for each"
    assert [one.late for one in desk.sp.store.uploads(desk.task, 1)] == [False] * 3 + [True] * 2
    desk.later(GRACE / 2)
    assert state(desk) == "open"
    assert desk.states() == ["rewarded", "open"]
    assert held(desk) == []
    assert moved(desk, 0, 1) == pytest.approx(oracle(0, 1, 2, 3, 4), abs=2e-3)


def test_without_a_late_upload_the_first_average_is_published(tmp_path: Path) -> None:
    """And divided once: CSP answers no second division."""
    desk = begun(tmp_path)
    asked: list[bytes] = []
    answer = desk.csp.answer
    desk.csp.answer = lambda task, request, longest=0: asked.append(request) or answer(task, request)  # type: ignore[method-assign,func-returns-value]
    send(desk, 0, 1, 2)
    desk.later(WINDOW)
    assert len(asked) == 1
    desk.clock.time += GRACE
    assert step(desk) == "gathered"
    assert step(desk) == "published"
    assert len(asked) == 1
    assert moved(desk, 1, 1) == pytest.approx(oracle(0, 1, 2), abs=2e-3)


def test_rewards_follow_publication_and_are_those_of_all(tmp_path: Path) -> None:
    desk = begun(tmp_path)
    send(desk, 0, 1, 2)
    desk.later(WINDOW)
    send(desk, 3)
    desk.clock.time += GRACE
    assert [step(desk) for _ in range(4)] == ["gathered", "gathered", "gathered", "published"]
    assert desk.ledger.balance(round_account(1)) == BUDGET, "nothing is booked before rewards are there"
    assert moved(desk, 0, 1) == pytest.approx(oracle(0, 1, 2, 3), abs=2e-3)
    with pytest.raises(NotReady):
        desk.sp.envelope(desk.task, 1, desk.crowd[0].keys.who)
    assert step(desk) == "rewarded"
    for person in desk.crowd[:4]:
        person.step(moved_by(0.0, 1))
    earned = [person.rewards()[1] / 1e6 for person in desk.crowd[:4]]
    assert earned == pytest.approx(rewards(0, 1, 2, 3), abs=0.02)


def test_the_first_average_is_erased_before_there_is_a_second(tmp_path: Path) -> None:
    """With what CSP has answered for it."""
    desk = begun(tmp_path)
    send(desk, 0, 1, 2)
    desk.later(WINDOW)
    first = held(desk)
    replies = desk.sp.store.replies(desk.task, 1)
    send(desk, 3)
    desk.clock.time += GRACE
    assert step(desk) == "gathered"
    assert step(desk) == "gathered"
    assert desk.sp.store.round(desk.task, 1).held is None
    assert step(desk) == "gathered"
    assert len(held(desk)) == 1
    assert held(desk) != first
    assert not replies.keys() & desk.sp.store.replies(desk.task, 1).keys()
    assert not [name for name in desk.sp.blobs.listing() if name.endswith(tuple(replies))]


def test_nothing_is_taken_once_late_uploads_are_gathered(tmp_path: Path) -> None:
    desk = begun(tmp_path)
    send(desk, 0, 1, 2)
    desk.later(WINDOW)
    desk.clock.time += GRACE
    assert step(desk) == "gathered"
    person = desk.crowd[3]
    person.encrypt(1, *moved_by(0.1, 1)(person.model(), {}, 1))
    upload = person.blobs.get("rounds/1/upload")
    with pytest.raises((RoundNotOpen, TooLate)):
        desk.sp.uploads.one(desk.task, 1, person.keys.who, upload)
    assert len(desk.sp.store.uploads(desk.task, 1)) == 3


def test_an_upload_that_comes_while_the_first_average_is_computed_is_taken(tmp_path: Path) -> None:
    desk = begun(tmp_path)
    send(desk, 0, 1, 2)
    answer = desk.csp.answer

    def slow(task: str, request: bytes, longest: int = 0) -> bytes:
        if len(desk.sp.store.uploads(desk.task, 1)) == 3:
            assert state(desk) == "closed"
            send(desk, 3)
        return answer(task, request, longest)

    desk.csp.answer = slow  # type: ignore[method-assign]
    desk.later(WINDOW)
    assert state(desk) == "held"
    desk.later(GRACE)
    assert moved(desk, 0, 1) == pytest.approx(oracle(0, 1, 2, 3), abs=2e-3)


def test_where_nobody_can_come_any_more_nothing_is_waited_for(tmp_path: Path) -> None:
    desk = begun(tmp_path, people=3)
    send(desk, 0, 1, 2)
    desk.run()
    assert desk.states() == ["rewarded", "open"]


def test_a_late_upload_that_is_damaged_costs_nobody_else(tmp_path: Path) -> None:
    desk = begun(tmp_path)
    send(desk, 0, 1, 2)
    desk.later(WINDOW)
    send(desk, 3)
    late = desk.sp.store.uploads(desk.task, 1)[-1]
    desk.sp.blobs.delete(f"{desk.task}/rounds/1/uploads/{late.digest}")
    desk.later(GRACE)
    assert desk.states()[0] == "rewarded"
    assert moved(desk, 0, 1) == pytest.approx(oracle(0, 1, 2), abs=2e-3)


def test_a_held_file_that_was_altered_is_averaged_again(tmp_path: Path) -> None:
    desk = begun(tmp_path)
    send(desk, 0, 1, 2)
    desk.later(WINDOW)
    (name,) = held(desk)
    data = desk.sp.blobs.get(name)
    desk.sp.blobs.delete(name)
    desk.sp.blobs.put(name, data[:-1] + bytes([data[-1] ^ 1]))
    assert hashlib.sha256(desk.sp.blobs.get(name)).hexdigest() != name.rsplit("/", 1)[1]
    desk.later(GRACE)
    assert moved(desk, 0, 1) == pytest.approx(oracle(0, 1, 2), abs=2e-3)


def test_a_cancelled_task_waits_for_nobody_and_pays_what_it_has_averaged(tmp_path: Path) -> None:
    desk = begun(tmp_path)
    send(desk, 0, 1, 2)
    desk.later(WINDOW)
    desk.requester.order(desk.task, "cancel")
    desk.run()
    assert desk.states() == ["rewarded"]


def test_everyone_is_paid_and_the_books_balance(tmp_path: Path) -> None:
    desk = begun(tmp_path, people=4)
    for _ in range(2):
        send(desk, 0, 1, 2)
        desk.later(WINDOW)
        send(desk, 3)
        desk.later(GRACE)
    desk.upload()
    opened = {person.keys.who: person.claim() for person in desk.crowd}
    desk.run()
    assert desk.state == TaskState.SETTLED
    assert {who: desk.ledger.balance(participant_account(who)) for who in opened} == opened
    returned = sum(move.amount for move in desk.ledger.movements if move.target == REQUESTER)
    assert returned + sum(opened.values()) == 2 * BUDGET


def test_the_other_profiles_average_once(tmp_path: Path) -> None:
    """They take late uploads before anything is averaged, as `paper` does for a length of time."""
    for name, own in (("shares", {}), ("paper", AGAIN | {"late": 50.0})):
        (tmp_path / name).mkdir()
        desk = Desk.funded(tmp_path / name, 4, **({"late": 50.0} | own))
        send(desk, 0, 1, 2)
        desk.later(WINDOW)
        assert RoundState(state(desk)) is RoundState.OPEN
        send(desk, 3)
        desk.later(50.0)
        assert desk.states()[0] == "rewarded"
        assert held(desk) == []


def test_a_round_that_is_given_up_after_its_publication_pays_nobody(tmp_path: Path) -> None:
    """Its money returns, nothing of it can be read any more, and nothing stays held."""
    desk = begun(tmp_path)
    send(desk, 0, 1, 2)
    desk.later(WINDOW)
    desk.clock.time += GRACE
    assert [step(desk), step(desk)] == ["gathered", "published"]
    store = desk.sp.store
    with store.transaction():
        desk.sp.steps.abort(desk.task, store.round(desk.task, 1))
    assert (desk.ledger.balance(round_account(1)), desk.ledger.balance(ESCROW)) == (0, 2 * BUDGET)
    assert store.round(desk.task, 1).held is None
    with pytest.raises(NotReady):
        desk.crowd[0].read(1)


def replaced_while_held(desk: Desk, place: int) -> Any:
    """The same person's new phone."""
    old = desk.crowd[place]
    person = desk.new_participant(desk.task, "new phone")
    person.join(desk.requester.invite(desk.task, 1, 1000.0, replaces=old.keys.who)[0])
    return person


def test_a_person_with_a_new_phone_counts_once(tmp_path: Path) -> None:
    """Though the old one's upload is in the held average already: the new one is told that the round has it."""
    desk = begun(tmp_path)
    send(desk, 0, 1, 2)
    desk.later(WINDOW)
    new = replaced_while_held(desk, 0)
    new.encrypt(1, *moved_by(0.5, 4)(new.model(), {}, 1))
    with pytest.raises(AlreadyCounted, match="a person is paid once"):
        desk.sp.uploads.one(desk.task, 1, new.keys.who, new.blobs.get("rounds/1/upload"))
    send(desk, 3)
    desk.later(GRACE)
    assert moved(desk, 1, 1) == pytest.approx(oracle(0, 1, 2, 3), abs=2e-3)
    assert {one.who for one in desk.sp.store.uploads(desk.task, 1)} == {p.keys.who for p in desk.crowd[:4]}


def test_a_new_phone_sends_where_the_old_ones_late_upload_was_taken_back(tmp_path: Path) -> None:
    desk = begun(tmp_path)
    send(desk, 0, 1, 2)
    desk.later(WINDOW)
    send(desk, 3)
    new = replaced_while_held(desk, 3)
    assert [one.who for one in desk.sp.store.uploads(desk.task, 1)] == [p.keys.who for p in desk.crowd[:3]]
    new.step(moved_by(MOVES[4], SAMPLES[4]))
    desk.later(GRACE)
    assert moved(desk, 1, 1) == pytest.approx(oracle(0, 1, 2, 4), abs=2e-3)


@pytest.mark.parametrize("place", [3, 0], ids=["late", "in the held average"])
def test_who_withdraws_while_an_average_is_held(tmp_path: Path, place: int) -> None:
    """A late upload was averaged by nobody yet, and goes. One that is in stays: the two averages would show it."""
    desk = begun(tmp_path)
    send(desk, 0, 1, 2)
    desk.later(WINDOW)
    send(desk, 3)
    done = desk.sp.people.withdraw(desk.task, desk.crowd[place].keys.who)
    assert done == ({"deleted": [1], "standing": []} if place == 3 else {"deleted": [], "standing": [1]})
    desk.later(GRACE)
    left = (0, 1, 2) if place == 3 else (0, 1, 2, 3)
    assert moved(desk, 1, 1) == pytest.approx(oracle(*left), abs=2e-3)


def test_who_withdraws_stays_where_nobody_can_read_whom_an_average_is_of(tmp_path: Path) -> None:
    desk = begun(tmp_path)
    send(desk, 0, 1, 2)
    desk.later(WINDOW)
    send(desk, 3)
    (kept,) = held(desk)
    desk.sp.blobs.delete(kept)
    desk.sp.blobs.put(kept, b"damaged")
    assert desk.sp.people.withdraw(desk.task, desk.crowd[3].keys.who) == {"deleted": [], "standing": [1]}


def test_who_may_be_in_the_first_average_stays_in_it(tmp_path: Path) -> None:
    """It came while that was made, and nobody can tell which came first."""
    desk = begun(tmp_path)
    send(desk, 0, 1, 2)
    drop = desk.sp.steps._drop_damaged
    desk.sp.steps._drop_damaged = lambda *args: (drop(*args), send(desk, 3))[0]  # type: ignore[method-assign]
    desk.later(WINDOW)
    del desk.sp.steps._drop_damaged
    assert (state(desk), desk.sp.store.uploads(desk.task, 1)[-1].late) == ("held", True)
    assert desk.sp.people.withdraw(desk.task, desk.crowd[3].keys.who) == {"deleted": [], "standing": [1]}
    desk.later(GRACE)
    assert moved(desk, 1, 1) == pytest.approx(oracle(0, 1, 2, 3), abs=2e-3)


def test_the_requester_gets_the_last_model_once_it_is_rewarded(tmp_path: Path) -> None:
    """Else a requester who has it could let the reward fail, with a CSP that stays silent, and have the money back."""
    desk = begun(tmp_path, rounds=1)
    send(desk, 0, 1, 2)
    desk.later(WINDOW)
    desk.clock.time += GRACE
    assert [step(desk), step(desk)] == ["gathered", "published"]
    with pytest.raises(NotReady, match="is published: nothing of it can be read"):
        desk.sp.publication(desk.task, 1, None)
    assert step(desk) == "rewarded"
    assert desk.sp.publication(desk.task, 1, None)
