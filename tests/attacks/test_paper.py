"""`paper`'s claims under attack: SP, CSP's one oracle for it, and participants that lie."""

import contextlib
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crowdfl.crypto.paillier.vector import CipherVector, PartialVector, residues
from crowdfl.documents.signed import TaskEnd
from crowdfl.errors import (
    BadSignature,
    ClaimRefused,
    CrowdFLError,
    FormatError,
    LengthMismatch,
    MasksDoNotFit,
    RewardOutOfRange,
    RewardsOff,
    RolledBack,
    WrongAmount,
)
from crowdfl.protocols.claims import Claim, KeptClaim, OpenedClaim
from crowdfl.protocols.messages import Limits
from crowdfl.protocols.paper.claims import KeptDifference, differences, digest
from crowdfl.protocols.paper.profile import PaperBundle, PaperReward, PaperSp
from crowdfl.roles.csp_retention import CLAIMS, CspRetention
from crowdfl.roles.records import TaskState
from crowdfl.roles.retention import OVER
from crowdfl.roles.sp.ledger import REQUESTER, participant_account
from crowdfl.settings import to_millionths
from tests.hosts import BUDGET, Desk, FileDisk, heard, moved_by, raising
from tests.protocols.driving import SMALL_PAPER, SmallParties, deal
from tests.protocols.settled import unclaimed

PAID = to_millionths(36)
ROUNDS = (1, 2)


@dataclass
class Played:
    """A task whose rounds were rewarded and opened, and what SP has served of it."""

    sides: SmallParties
    served: dict[str, dict[int, bytes]] = field(default_factory=dict)

    def claim(self, who: str) -> bytes:
        return self.sides.people[who].claim()

    def opened(self, who: str) -> Claim:
        return Claim.from_bytes(self.claim(who), self.sides.sp.party.limits(1))

    def request(self, who: str) -> OpenedClaim:
        data = self.sides.sp.claim_request(self.claim(who), lambda: self.served[who])
        return OpenedClaim.from_bytes(data, self.sides.sp.party.limits(5))

    def signed(self, who: str, **changes: Any) -> Claim:
        """Other contents, signed by their owner."""
        changed = replace(self.opened(who), **changes)
        return replace(changed, signature=self.sides.keys[who].signing.sign(changed.statement))

    def ask(self, claim: Claim, mu: CipherVector, shift: int = 0) -> bytes:
        """As SP with its share asks about any ciphertexts; with a half that moves what is opened by so much."""
        party = self.sides.sp.party
        half = party.partial_decrypt(differences(party, mu, claim.masks))
        return OpenedClaim(claim.to_bytes(), mu, shifted(half, [shift] * len(half))).to_bytes()

    def mu(self, who: str, number: int) -> CipherVector:
        return PaperReward.from_bytes(self.served[who][number], self.sides.sp.party.limits(1)).mu

    def kept(self) -> dict[Any, Any]:
        return {
            place: standing
            for place, standing in self.sides.csp.records.records.items()
            if place.kind in (KeptDifference.kind, KeptClaim.kind)
        }


def shifted(half: PartialVector, by: Sequence[int]) -> PartialVector:
    """A half times 1 + kN: what is opened with it is larger by k."""
    k = residues((step % int(half.public.n) for step in by), half.public)
    return replace(half, block=CipherVector(half.public, half.block).add_plain(k).block)


@pytest.fixture(scope="module")
def settled() -> Played:
    sides = deal(3, 2, **(SMALL_PAPER | {"rounds": 5, "budget": "36.00"}))
    played = Played(sides, {who: {} for who in sides.people})
    for number in ROUNDS:
        updates = {who: (np.array([0.1 * i, 0.5]), i + 2) for i, who in enumerate(sides.people)}
        for who, envelope in sides.play(number, sides.encrypt(updates, number), payment=PAID).envelopes.items():
            played.served[who][number] = envelope
    return played


@pytest.fixture
def played(settled: Played) -> Iterator[Played]:
    """With a CSP that has opened nothing yet."""
    with unclaimed(settled.sides):
        yield settled


def attested(played: Played, who: str) -> dict[int, int]:
    claim, request = played.claim(who), played.request(who).to_bytes()
    return dict(played.sides.sp.attested(claim, played.sides.csp.answer(request)).amounts)


def test_everyone_is_attested_what_they_opened_to_the_unit(played: Played) -> None:
    found = {who: attested(played, who) for who in played.sides.people}
    assert found == {who: dict(played.sides.people[who]._amounts) for who in found}
    for number in ROUNDS:
        assert PAID - 3000 <= sum(amounts[number] for amounts in found.values()) <= PAID  # 10^-3 for each division
    assert found == {who: attested(played, who) for who in found}  # the same again, by what is kept


# What SP may try with an honest claim of p0's, whose second round is the one that is altered.


def _another_ciphertext(played: Played) -> bytes:
    """An upload's number, say."""
    mu = played.request("p0").mu
    other = CipherVector.concat([mu.part(0, 1), played.mu("p1", 2)])
    return played.ask(played.opened("p0"), other)


def _another_amount(played: Played) -> bytes:
    claim = played.opened("p0")
    return played.ask(replace(claim, masks=(claim.masks[0], claim.masks[1] + 1)), played.request("p0").mu)


def _another_round(played: Played) -> bytes:
    return played.ask(replace(played.opened("p0"), rounds=(1, 3)), played.request("p0").mu)


def _another_half(played: Played) -> bytes:
    asked = played.request("p0")
    return replace(asked, differences_1=replace(asked.differences_1, block=asked.differences_1.block[::-1])).to_bytes()


def _formed_by_sp(played: Played) -> bytes:
    """The difference in the ciphertext's place."""
    claim, mu = played.opened("p0"), played.request("p0").mu
    return played.ask(claim, differences(played.sides.sp.party, mu, claim.masks))


def _fewer(played: Played) -> bytes:
    asked = played.request("p0")
    return replace(asked, mu=asked.mu.part(0, 1)).to_bytes()


def _fewer_halves(played: Played) -> bytes:
    asked = played.request("p0")
    return replace(asked, differences_1=replace(asked.differences_1, block=asked.differences_1.block[:1])).to_bytes()


TRICKS: dict[str, tuple[Callable[[Played], bytes], type[CrowdFLError]]] = {
    "another ciphertext": (_another_ciphertext, MasksDoNotFit),
    "another amount": (_another_amount, BadSignature),
    "another round": (_another_round, BadSignature),
    "a half of another ciphertext": (_another_half, MasksDoNotFit),
    "a difference that SP has formed": (_formed_by_sp, MasksDoNotFit),
    "fewer ciphertexts than rounds": (_fewer, LengthMismatch),
    "fewer halves than rounds": (_fewer_halves, LengthMismatch),
}


@pytest.mark.parametrize("trick", TRICKS)
def test_sp_asks_nothing_of_its_own_and_the_honest_claim_is_still_attested(played: Played, trick: str) -> None:
    """Nothing is opened, nothing is kept, and nobody has lost anything."""
    make, error = TRICKS[trick]
    with pytest.raises(error):
        played.sides.csp.answer(make(played))
    assert played.kept() == {}
    assert attested(played, "p0")


def test_one_difference_of_a_person_and_round_is_opened_whatever_sp_sends(played: Played) -> None:
    """With a half that moves what is opened SP asks one question, and every further one gets its answer again."""
    claim, mu, csp = played.opened("p0"), played.request("p0").mu, played.sides.csp
    with pytest.raises(WrongAmount):
        csp.answer(played.ask(claim, mu, shift=1))
    kept, done = played.kept(), csp.side.party.costs.total("TDec")
    for shift in (-1, 0, 1, 2):
        with pytest.raises(WrongAmount):
            csp.answer(played.ask(claim, mu, shift=shift))
    assert csp.side.party.costs.total("TDec") == done
    assert played.kept() == kept
    assert len(kept) == len(ROUNDS)


def test_an_attested_amount_is_not_opened_again(played: Played) -> None:
    attested(played, "p0")
    csp, done = played.sides.csp, played.sides.csp.side.party.costs.total("TDec")
    assert csp.answer(played.ask(played.opened("p0"), played.request("p0").mu, shift=7))
    assert csp.side.party.costs.total("TDec") == done


def test_of_several_rounds_the_true_ones_can_still_be_claimed(played: Played) -> None:
    claim = played.opened("p0")
    false = played.signed(
        "p0", masks=(claim.masks[0], claim.masks[1] - 1), amounts=(claim.amounts[0], claim.amounts[1] - 1000)
    )
    with pytest.raises(WrongAmount):
        played.sides.csp.answer(played.ask(false, played.request("p0").mu))
    with pytest.raises(WrongAmount):  # the second round is lost: it was compared with another integer
        attested(played, "p0")
    first = {name: getattr(claim, name)[:1] for name in ("rounds", "amounts", "masks", "salts", "shown")}
    alone = played.signed("p0", **first)
    answer = played.sides.csp.answer(played.ask(alone, played.mu("p0", 1)))
    assert played.sides.sp.attested(alone.to_bytes(), answer).amounts == {1: claim.amounts[0]}


def test_what_was_true_of_one_integer_is_not_believed_of_another(played: Played) -> None:
    """Of a claim that was refused for its second round, the first was compared, and was true."""
    claim, mu = played.opened("p0"), played.request("p0").mu
    with pytest.raises(WrongAmount):
        played.sides.csp.answer(played.ask(played.signed("p0", **_units(claim, 0)), mu))
    masks, amounts = (claim.masks[0] + 1, claim.masks[1]), (claim.amounts[0] + 1000, claim.amounts[1])
    more = {name: getattr(claim, name)[:1] for name in ("rounds", "salts", "shown")}
    greedy = played.signed("p0", masks=masks[:1], amounts=amounts[:1], **more)
    with pytest.raises(WrongAmount):
        played.sides.csp.answer(played.ask(greedy, mu.part(0, 1)))


# What a participant may sign.


def _units(claim: Claim, units: int) -> dict[str, Any]:
    return {"masks": (claim.masks[0], units), "amounts": (claim.amounts[0], units * 1000)}


FALSE: dict[str, tuple[Callable[[Played, Claim], dict[str, Any]], type[CrowdFLError], bool]] = {
    "one unit more": (lambda _, own: _units(own, own.masks[1] + 1), WrongAmount, True),
    "one unit less": (lambda _, own: _units(own, own.masks[1] - 1), WrongAmount, True),
    "nothing": (lambda _, own: _units(own, 0), WrongAmount, True),
    "more than the round has": (lambda _, own: _units(own, 36_001), WrongAmount, False),
    "a number modulo N": (
        lambda p, own: _units(own, own.masks[1] + int(p.sides.sp.party.public.n)),
        LengthMismatch,
        False,
    ),
    "more money than units": (lambda _, own: {"amounts": (own.amounts[0], own.amounts[1] + 1)}, WrongAmount, False),
    "less money than units": (lambda _, own: {"amounts": (own.amounts[0], own.amounts[1] - 1)}, WrongAmount, False),
    "another's reward": (lambda p, own: {"shown": (own.shown[0], digest(p.mu("p1", 2)))}, MasksDoNotFit, False),
    "round 0": (lambda _, own: {"rounds": (0, own.rounds[1])}, MasksDoNotFit, False),
    "a round after the last": (lambda _, own: {"rounds": (1, 6)}, MasksDoNotFit, False),
    "no hash": (lambda _, own: {"shown": (own.shown[0], b"")}, MasksDoNotFit, False),
}


@pytest.mark.parametrize("what", FALSE)
def test_a_false_claim_is_refused_though_its_owner_signs_it(played: Played, what: str) -> None:
    """What was compared is kept; what could not be a reward is not even opened."""
    change, error, is_opened = FALSE[what]
    false, seen = played.signed("p0", **change(played, played.opened("p0"))), played.sides.csp.side.party.costs
    before = seen.total("TDec")
    with pytest.raises(error):
        played.sides.csp.answer(played.ask(false, played.request("p0").mu))
    assert bool(played.kept()) is is_opened
    assert (seen.total("TDec") > before) is is_opened
    assert not any(place.kind == KeptClaim.kind for place in played.kept())


def test_sp_decrypts_nothing_but_what_it_has_served_to_the_claimant(played: Played) -> None:
    """Whatever hash a participant signs."""
    sp, false = played.sides.sp, played.signed("p0", shown=(digest(played.mu("p1", 1)), digest(played.mu("p1", 2))))
    for served in (played.served["p0"], {}, {1: played.served["p0"][1]}):
        with pytest.raises(MasksDoNotFit):
            sp.claim_request(false.to_bytes(), lambda served=served: served)


def test_a_claim_of_nobody_that_takes_part_is_refused(played: Played) -> None:
    """CSP knows people by their certificates."""
    stranger = deal(3, 2, **(SMALL_PAPER | {"rounds": 5})).keys["p0"].signing
    claim = played.opened("p0")
    with pytest.raises(BadSignature):
        played.sides.csp.answer(
            played.ask(replace(claim, signature=stranger.sign(claim.statement)), played.request("p0").mu)
        )
    unknown = replace(claim, participant="p9")
    with pytest.raises(ClaimRefused, match="took no part"):
        played.sides.csp.answer(played.ask(unknown, played.request("p0").mu))


# What a phone takes for its reward.


def _served(played: Played, value: int) -> bytes:
    sp = played.sides.sp
    mu = sp.party.encrypt([value])
    return PaperReward(mu, sp.delivery.partial_decrypt(mu)).to_bytes()


@pytest.mark.parametrize("value", [-1, 36_001, 2**200])
def test_a_phone_claims_nothing_that_no_round_can_pay(played: Played, value: int) -> None:
    person = played.sides.fresh_person("p0")
    with pytest.raises(RewardOutOfRange):
        person.open_reward(_served(played, value), 1)
    assert Claim.from_bytes(person.claim(), played.sides.sp.party.limits(1)).rounds == ()
    assert person.open_reward(_served(played, 36_000), 1) == PAID


def test_a_reward_is_one_number(played: Played) -> None:
    reward = PaperReward.from_bytes(played.served["p0"][1], played.sides.sp.party.limits(1))
    for empty in (
        replace(reward, mu=reward.mu.part(0, 0)),
        replace(reward, mu=reward.mu.part(0, 0), mu_1=replace(reward.mu_1, block=reward.mu_1.block[:0])),
    ):
        with pytest.raises(FormatError):
            played.sides.people["p0"].open_reward(empty.to_bytes(), 1)


def test_a_task_without_rewards_has_no_claims() -> None:
    sides = deal(3, 2, **(SMALL_PAPER | {"lanes": 0}))
    with pytest.raises(RewardsOff):
        sides.people["p0"].claim()


# The whole campaign.

PAPER: dict[str, Any] = {"profile": "paper", "key_bits": 512, "mask_bits": 45}


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """Both rounds are rewarded, and everyone has read them."""
    desk = Desk.funded(tmp_path, 3, rounds=2, **PAPER)
    for samples in ROUNDS:
        for person in desk.crowd:
            person.step(moved_by(0.1 * (1 + desk.crowd.index(person)), samples))
        desk.run()
    desk.upload()
    return desk


def test_a_campaign_pays_everyone_what_they_opened_and_the_books_balance(desk: Desk) -> None:
    opened = {person.keys.who: sum(person.rewards().values()) for person in desk.crowd}
    assert {person.keys.who: person.claim() for person in desk.crowd} == opened
    assert len(set(opened.values())) > 1, "by Eq. 10, unequal"
    desk.run()
    assert desk.state == TaskState.SETTLED
    assert {who: desk.ledger.balance(participant_account(who)) for who in opened} == opened
    returned = sum(move.amount for move in desk.ledger.movements if move.target == REQUESTER)
    assert returned + sum(opened.values()) == 2 * BUDGET


@pytest.mark.parametrize("is_set_back", [False, True])
def test_csp_keeps_its_share_for_claims_until_sp_says_that_there_are_no_more(desk: Desk, is_set_back: bool) -> None:
    """Without SP's half there are none. One that was set back answers none either, and has no use for its share."""
    csp, key = desk.csp, desk.signing.public
    found = CspRetention(csp.store, csp.bundles, desk.clock, csp.blobs, csp.guard, sp_key=key, forget=csp.drop)
    for person in desk.crowd:
        assert person.claim() == sum(person.rewards().values())
    csp.store.change_task(desk.task, rolled_back=is_set_back)
    found.end(desk.task, TaskEnd(desk.task, "settled", desk.clock.time).sign(desk.signing))
    assert csp.store.task(desk.task).state == (CLAIMS if is_set_back else OVER)
    for name in csp.bundles.listing():
        assert PaperBundle.from_bytes(csp.bundles.get(name), Limits.plain()).secrets == (0,)


@pytest.mark.parametrize("is_answered_before", [False, True])
def test_a_csp_that_was_set_back_opens_nothing_more(desk: Desk, tmp_path: Path, is_answered_before: bool) -> None:
    """Else SP would ask once more about the same person and round. What was answered is noted before it leaves, and again when
    it is repeated: whoever was first may have died in between."""
    asked: list[bytes] = []
    answer = desk.csp.answer
    desk.csp.answer = lambda task, request, longest=0: asked.append(request) or answer(task, request)
    shutil.copytree(tmp_path / "csp", tmp_path / "copy/csp")
    note, desk.csp.guard.note = (
        desk.csp.guard.note,
        raising(OSError("died")) if is_answered_before else desk.csp.guard.note,
    )
    with contextlib.suppress(OSError):
        desk.crowd[0].claim()
    desk.csp.guard.note = note
    assert answer(desk.task, asked[-1])
    shutil.rmtree(tmp_path / "copy/csp/guard")
    shutil.copytree(tmp_path / "csp/guard", tmp_path / "copy/csp/guard")
    back = desk.new_csp(disk=FileDisk(tmp_path / "copy"))
    with pytest.raises(RolledBack):
        back.answer(desk.task, asked[-1])


def test_one_altered_round_costs_no_other(desk: Desk) -> None:
    """An SP that moves what is opened of round 2 spoils that one alone; its owner is told."""
    person = desk.crowd[0]
    told = heard(person)
    honest = PaperSp.shown_claim

    def moved(self: PaperSp, claim: bytes, envelopes: Any) -> bytes:
        asked = OpenedClaim.from_bytes(honest(self, claim, envelopes), self.party.limits(2))
        rounds = Claim.from_bytes(claim, self.party.limits(1)).rounds
        return replace(asked, differences_1=shifted(asked.differences_1, [int(n == 2) for n in rounds])).to_bytes()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PaperSp, "shown_claim", moved)
        assert person.claim() == person.rewards()[1] > 0
    without = [details["rounds"] for what, details in told if what == "claiming without"]
    assert without == [[2]]
