"""Pay `fixed`: so much for each round that counts somebody, a bonus for who was in all that asked them; not a cent is lost."""

from contextlib import nullcontext
from dataclasses import replace

import pytest

from crowdfl.crypto.signing import SigningKey
from crowdfl.errors import (
    BadSignature,
    ClaimRefused,
    LengthMismatch,
    NotReady,
    OutOfTurn,
    ProtocolError,
    RolledBack,
    RoundEnded,
    SettingsError,
    UploadRejected,
    WrongAmount,
)
from crowdfl.protocols.claims import BONUS, BonusRequest
from crowdfl.protocols.messages import Limits, Message
from crowdfl.protocols.records import Look, MemoryRecords
from crowdfl.protocols.shares.round.bonus import Attendance, BonusWord, RoundOpened, bonus_people
from crowdfl.protocols.shares.round.manifest import StepRequest
from crowdfl.roles.sp.ledger import BONUSES, ESCROW, REQUESTER
from crowdfl.settings import PlanSettings, TaskSettings
from tests.hosts import Desk, raising

EACH, EXTRA = 2_000_000, 1_000_000
FIXED = {"pay": "fixed", "each": "2.00", "bonus": "1.00", "budget": None, "rounds": 2}


class Study(Desk):
    """A task of two rounds, paid for, and people who come when they like."""

    def __init__(self, folder, people=4, **settings):
        super().__init__(folder, **(FIXED | settings))
        self.invite(people)
        self.requester.fund(self.task, PlanSettings().whole_cost(self.settings), "all")
        self.run()

    def hold(self, *absent):
        """A round, without these."""
        self.upload([one for one in self.crowd if one not in absent])
        self.later(101)

    def paid(self, person):
        found = self.ledger.paid().get(person.keys.who, {})
        return {number: found[number] for number in sorted(found)}

    def claim_all(self):
        self.run()
        for person in self.crowd:
            person.step(lambda weights, _samples: (weights, 1))
            person.claim()


@pytest.fixture
def study(tmp_path):
    made = []

    def make(**settings):
        made.append(Study(tmp_path / str(len(made)), **settings))
        return made[-1]

    yield make
    for one in made:
        assert sum(one.ledger.balances().values()) == 0
        one.disk.close()


def test_each_round_pays_what_was_said_and_the_bonus_who_was_in_all(study):
    desk = study()
    ann, *_, dan = desk.crowd
    assert desk.ledger.balance(BONUSES) == 5 * EXTRA, "of the most who can get one"
    desk.hold()
    assert desk.ledger.balance("earned 1") == 4 * EACH, "what was kept for a fifth is free again"
    desk.hold(dan)
    desk.claim_all()
    assert desk.paid(ann) == {BONUS: EXTRA, 1: EACH, 2: EACH}
    assert desk.paid(dan) == {1: EACH}
    assert (dan.rewards(), ann.rewards()[BONUS]) == ({1: EACH}, EXTRA)
    assert desk.state in {"finished", "settled"}
    desk.after_claims()
    assert desk.state == "settled"
    paid = sum(sum(rounds.values()) for rounds in desk.ledger.paid().values())
    assert paid == 4 * EACH + 3 * EACH + 3 * EXTRA
    assert -desk.ledger.balance(REQUESTER) == paid, "the rest has returned"
    assert not any(
        held for name, held in desk.ledger.balances().items() if name in (ESCROW, BONUSES) or "earned" in name
    )


def test_a_bonus_is_claimed_once_and_by_nobody_else(study):
    desk = study()
    ann, *_, dan = desk.crowd
    desk.hold()
    desk.hold(dan)
    desk.run()
    ann.step(lambda weights, _samples: (weights, 1))
    ann.claimed._read_last(ann.look_again())
    greedy = ann.new_side()
    greedy.open_reward(ann.blobs.get(f"rounds/{BONUS}/reward"), BONUS)
    greedy._amounts[BONUS] = 2 * EXTRA
    with pytest.raises(WrongAmount):
        desk.sp.claims.pay(desk.task, greedy.claim())
    desk.claim_all()
    before = desk.ledger.movements
    ann.claim()
    assert desk.ledger.movements == before
    forged = dan.new_side()
    forged.open_reward(dan.blobs.get("rounds/1/reward"), 1)
    envelope = forged._envelopes[1]
    forged._earned(BONUS, envelope, EXTRA)
    with pytest.raises(ClaimRefused):
        desk.sp.claims.pay(desk.task, forged.claim())
    assert desk.paid(dan) == {1: EACH}


def test_repro_sps_word_that_somebody_gets_no_bonus_gives_up_nothing(study):
    """CSP's signed word says who gets none; an SP that refuses with the same error is asked again."""
    desk = study()
    ann = desk.crowd[0]
    desk.hold()
    desk.hold()
    desk.run()
    honest = desk.sp_link.reward

    def refusing(task, number, keys):
        return raising(UploadRejected("no bonus for you"))() if number == BONUS else honest(task, number, keys)

    desk.sp_link.reward = refusing
    assert ann.claim() == 2 * EACH
    assert ann.awaits_bonus()
    del desk.sp_link.reward
    assert ann.claim() == 2 * EACH + EXTRA


def test_repro_a_claim_with_a_bonus_that_is_sent_again_once_the_books_are_closed_is_answered(study):
    """Its answer was lost. It names every round and the bonus: one more than the task has rounds."""
    desk = study()
    desk.hold()
    desk.hold()
    desk.claim_all()
    desk.after_claims()
    assert desk.state == "settled"
    ann = desk.crowd[0]
    answered = desk.sp.claims.pay(desk.task, ann.blobs.get("claim"))
    assert answered.amount == 2 * EACH + EXTRA


def test_who_joins_late_is_asked_by_what_opens_after(study):
    desk = study()
    desk.upload()
    (late,) = desk.invite(1)[-1:]
    desk.later(101)
    desk.hold()
    desk.claim_all()
    assert desk.paid(late) == {BONUS: EXTRA, 2: EACH}


def test_who_was_there_from_the_start_and_came_late_gets_no_bonus(study):
    desk = study()
    desk.hold(desk.crowd[3])
    desk.hold()
    desk.claim_all()
    assert desk.paid(desk.crowd[3]) == {2: EACH}


def test_a_round_that_draws_people_asks_those_alone(study):
    desk = study(people=5, per_round=3, rounds=3)
    for _ in range(3):
        desk.hold()
    desk.claim_all()
    drawn = [desk.sp.store.drawn(desk.task, number) for number in (1, 2, 3)]
    for person in desk.crowd:
        rounds = {number for number, people in enumerate(drawn, start=1) if person.keys.who in people}
        assert set(desk.paid(person)) == rounds | ({BONUS} if rounds else set())


def test_a_task_that_ends_early_pays_the_bonus_for_the_rounds_that_there_were(study):
    desk = study(rounds=3)
    desk.hold(desk.crowd[3])
    desk.requester.order(desk.task, "cancel")
    desk.claim_all()
    assert desk.paid(desk.crowd[0]) == {BONUS: EXTRA, 1: EACH}
    assert desk.paid(desk.crowd[3]) == {}


@pytest.mark.parametrize("is_seen", [False, True], ids=["by its guard", "at a step before"])
def test_a_csp_that_was_set_back_says_of_nobody_who_was_there_in_every_round(study, is_seen):
    """It has lost rounds: who skipped one of them would be paid for it, and who joined since never. Rounds are paid still."""
    desk = study(rounds=3)
    desk.hold()
    desk.hold()
    stored = desk.csp.store.task(desk.task)
    lost = {"rolled_back": True} if is_seen else {"steps": stored.steps - 1, "said": "0" * 64}
    desk.csp.store.change_task(desk.task, **lost)
    for _ in range(2):
        with pytest.raises(RolledBack):
            desk.csp.answer(desk.task, BonusRequest(desk.task).to_bytes())
    assert desk.csp.store.task(desk.task).rolled_back
    desk.hold()
    assert desk.state == "cancelled"
    desk.claim_all()
    assert [desk.paid(one) for one in desk.crowd] == [{1: EACH, 2: EACH}] * 4
    assert (desk.ledger.balance(BONUSES), desk.ledger.balance("earned 0")) == (0, 0), "it is free again"


def test_csp_takes_no_step_once_it_has_said_who_gets_it(study):
    desk = study(rounds=3)
    desk.hold()
    csp = desk.csp
    word = BonusWord.from_bytes(csp.answer(desk.task, BonusRequest(desk.task).to_bytes()), Limits.plain())
    assert set(word.names) == {one.keys.who for one in desk.crowd}
    with pytest.raises(RoundEnded):
        csp.answer(desk.task, RoundOpened(3, ()).to_bytes())
    desk.hold()
    desk.hold()
    assert "rewarded" not in desk.states()[1:]


def test_whom_a_round_asks_is_said_before_it_begins(study):
    """Not when SP has seen who came: it would choose who has missed a round. Nor once it is over."""
    desk, refused = study(rounds=3), []

    def late(call, deliver):
        reply = deliver()
        if call.name == "answer" and Message.kind_of(call.arguments[1]) == StepRequest.kind:
            with pytest.raises((OutOfTurn, RoundEnded)) as refusal:
                desk.csp.answer(desk.task, RoundOpened(1, ("somebody",)).to_bytes())
            refused.append(refusal.type)
        return reply

    desk.network = late
    desk.hold()
    assert set(refused[:-1]) == {OutOfTurn}
    assert refused[-1] is RoundEnded


def test_whom_a_round_asks_goes_by_names_as_long_as_declared(study):
    desk = study()
    with pytest.raises(LengthMismatch):
        desk.csp.answer(desk.task, RoundOpened(2, ("p" * 65,)).to_bytes())


def test_a_request_for_the_bonus_of_another_task_ends_no_rounds_here(study):
    desk = study(rounds=3)
    desk.hold()
    with pytest.raises(ProtocolError, match="another task"):
        desk.csp.answer(desk.task, BonusRequest("0" * 64).to_bytes())
    desk.hold()
    assert desk.states()[1] == "rewarded"


@pytest.mark.parametrize("wrong", ["signed by SP", "of another task"])
def test_nobody_takes_another_word_about_the_bonus(study, wrong):
    """Neither SP of CSP, nor a phone of SP, nor a CSP that was set back: it pays by what it is shown of its own."""
    desk = study()
    ann, look = desk.crowd[0], Look(MemoryRecords())
    desk.hold()
    desk.hold()
    word = BonusWord.from_bytes(desk.csp.answer(desk.task, BonusRequest(desk.task).to_bytes()), Limits.plain())
    side, sp = desk.csp._sides[desk.task], desk.sp.aggregators.checking(desk.task)
    forged, refusal = {
        "signed by SP": (word.sign(SigningKey.fresh()), BadSignature),
        "of another task": (replace(word, task="0" * 64).sign(side.task_key), ProtocolError),
    }[wrong]
    for one, is_right in ((word.to_bytes(), True), (forged.to_bytes(), False)):
        with nullcontext() if is_right else pytest.raises(refusal):
            assert ann.keys.who in sp.bonus_people(one)
        with nullcontext() if is_right else pytest.raises(refusal):
            assert ann.side.open_reward(sp.bonus_envelope(one), BONUS) == EXTRA
        assert (side.shown(look, BONUS, ann.keys.who, b"", one) is not None) == is_right


def test_before_the_last_round_nobody_is_told_of_a_bonus(study):
    desk = study()
    desk.hold()
    with pytest.raises(NotReady):
        desk.sp.envelope(desk.task, BONUS, desk.crowd[0].keys.who)


def test_a_person_with_two_devices_gets_one_bonus_with_the_newest():
    """Each round counts one of them; no chain of devices is two people."""
    places = {"old": "p", "new": "p", "other": "q"}
    rounds = [Attendance({"old", "other"}, {"old"}), Attendance({"old", "new", "other"}, {"new"})]
    assert bonus_people(rounds, ["old", "other", "new"], places) == ("new",)
    assert bonus_people([*rounds, Attendance({"new"}, ())], ["old", "other", "new"], places) == ()


def test_a_void_round_counts_for_who_was_in_its_manifest_and_nobody_without_a_round_gets_a_bonus():
    order = ["ann", "bob", "cleo"]
    void = Attendance(order, {"ann", "bob"})
    assert bonus_people([void], order, {}) == ("ann", "bob")
    assert bonus_people([void, Attendance((), {"cleo"})], order, {}) == ("ann", "bob")
    assert bonus_people([Attendance(["ann"], {"ann"})], order, {}) == ("ann",), "bob and cleo were asked by no round"


def test_amounts_are_exact_and_the_budget_follows():
    fixed = TaskSettings.of(pay="fixed", each="0.333333", bonus="0.000001", max_participants=7, rounds=3)
    assert (fixed.each_round, fixed.bonus_budget) == (333_333, 7)
    assert PlanSettings().whole_cost(fixed) == 3 * 7 * 333_333 + 7
    assert TaskSettings.of(**(fixed.model_dump() | {"profile": "shares"})) == fixed
    drawn = TaskSettings.of(pay="fixed", each="1", bonus="1", max_participants=50, per_round=5, rounds=3)
    assert (PlanSettings().round_cost(drawn), drawn.bonus_budget) == (5_000_000, 15_000_000)
    for wrong in ({"each": None}, {"each": "0"}, {"each": "2.00", "budget": "36.00"}):
        with pytest.raises(SettingsError):
            TaskSettings.of(pay="fixed", **wrong)
