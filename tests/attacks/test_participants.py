"""Participants who cheat: with counts below zero, and with plaintexts that no model has."""

from pathlib import Path

import numpy as np
import pytest

from crowdfl.errors import CrowdFLError, NotReady, RewardOutOfRange
from tests.attacks.cheating import WEIGHTS, honest_uploads, raw_upload, send, weighted_mean, weighted_upload
from tests.hosts import Desk

BUDGET = 36_000_000
COUNTS = (5, 7, 3)
MODELS = (WEIGHTS, WEIGHTS * 0.5, -WEIGHTS)


def desk_of(tmp_path: Path, rounds: int) -> Desk:
    """Three honest people, and two who belong to somebody with plans."""
    desk = Desk(tmp_path, rounds=rounds, lanes=None)
    desk.invite(5)
    desk.requester.fund(desk.task, rounds * BUDGET, "all")
    desk.run()
    return desk


def play(desk: Desk, number: int, forged: tuple[bytes, bytes]) -> None:
    honest_uploads(desk, number, MODELS, COUNTS)
    for person, upload in zip(desk.crowd[3:], forged, strict=True):
        send(desk, number, person, upload)
    desk.run()


def paid(desk: Desk, person: int) -> int:
    """What a claim brings; nothing if it is refused."""
    try:
        return desk.crowd[person].claim()
    except CrowdFLError:
        return 0


@pytest.mark.second
def test_two_who_cheat_together_take_nothing_from_other_rounds(tmp_path: Path):
    """Counts of -10 and +10 leave the average alone, and would have earned one of the two many times the budget."""
    desk = desk_of(tmp_path, 3)
    for number in (1, 2, 3):
        counts = (-10, 10) if number == 3 else (1, 1)
        uploads = [weighted_upload(desk, p, WEIGHTS * 0, k) for p, k in zip(desk.crowd[3:], counts, strict=True)]
        play(desk, number, (uploads[0], uploads[1]))
    earned: dict[int, list[int]] = {}
    for index, person in enumerate(desk.crowd):
        earned[index] = []
        for number in (1, 2, 3):
            try:
                earned[index].append(person.open_reward(number))
            except RewardOutOfRange:
                earned[index].append(-1)
    assert earned[3][2] == -1 or earned[4][2] == -1  # the cheat pays in nobody's favour but the cheats'
    order = (4, 3, 0, 1, 2)
    got = {person: paid(desk, person) for person in order}
    for person in (0, 1, 2):  # whatever the two did to round 3, the rounds before are paid in full
        assert got[person] >= earned[person][0] + earned[person][1]
    balances = desk.sp.ledger(desk.task).balances()
    assert all(amount >= 0 for account, amount in balances.items() if account != "requester")
    assert sum(got.values()) <= 3 * BUDGET


def test_a_bad_upload_costs_its_round_and_nothing_else(tmp_path: Path):
    """Two uploads far outside a slot cancel in the sum. They end the round: no model of it, its money back at once."""
    desk = desk_of(tmp_path, 2)
    n = int(desk.crowd[0].side.party.public.n)
    for number, z in ((1, 0), (2, n // 2 - 12345)):
        play(desk, number, (raw_upload(desk, desk.crowd[3], z), raw_upload(desk, desk.crowd[4], -z)))
    status = desk.sp.status(desk.task)
    assert [entry["state"] for entry in status["rounds"]] == ["rewarded", "aborted"]
    with pytest.raises(NotReady):
        desk.sp.publication(desk.task, 2, None)
    model = np.concatenate([array.reshape(-1) for array in desk.requester.model(desk.task)])
    assert np.abs(model - weighted_mean(MODELS, COUNTS)).max() < 2e-3  # of round 1, which was paid for
    assert BUDGET - 10 <= sum(desk.crowd[person].claim() for person in range(5)) <= BUDGET
    desk.run()
    assert desk.sp.ledger(desk.task).balance("escrow") == 0
    returned = [m.amount for m in desk.sp.ledger(desk.task).movements if m.target == "requester"]
    assert sum(returned) == BUDGET  # round 2's, without waiting for a day
