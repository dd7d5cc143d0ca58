"""Claims: the true amount is paid once, anything else is refused by name."""

from dataclasses import replace
from decimal import Decimal

import pytest

from crowdfl.crypto.sealing import SigningKey
from crowdfl.errors import (
    AlreadyPaid,
    BadSignature,
    ClaimRefused,
    CrowdFLError,
    FormatError,
    MasksDoNotFit,
    RewardsOff,
    SealBroken,
    WrongAmount,
)
from crowdfl.protocols.claims import Attestation, Claim
from tests.protocols.driving import SMALL, converse, deal, federation, updates

BUDGET = 36_000_000


def settle(sides, *, rounds=2):
    """Some rounds with rewards; every participant opens its own."""
    for number in range(1, rounds + 1):
        sides.sp.open_round(number)
        for i, who in enumerate(sides.people):
            sides.sp.add(who, sides.upload([0.1 * i, 0.5], i + 2, who))
        converse(sides.sp.publish(final=False), sides.csp.answer)
        converse(sides.sp.reward(BUDGET), sides.csp.answer)
        for who, envelope in sides.sp.envelopes().items():
            sides.people[who].open_reward(envelope, number)
    return sides


@pytest.fixture
def sides(settled):
    """The settled task with an SP that has paid nobody yet."""
    settled.sp._claims.paid.clear()
    return settled


@pytest.fixture(scope="module")
def settled():
    """Three participants, two rounds of rewards."""
    return settle(deal(3, 2, **(SMALL | {"max_participants": 3, "rounds": 5})))


def earned(sides, who):
    """What a participant has opened, in millionths."""
    fraction = sides.sp._shape.widths().fraction
    return sum(reward >> fraction for reward in sides.people[who]._rewards.values())


def claim_of(sides, who):
    """A participant's true claim, decoded."""
    return Claim.from_bytes(sides.people[who].claim(), sides.sp.party.limits(1))


def signed(sides, who, **changes):
    """A claim with other contents, signed anew by its owner (the masks stay as they are unless given)."""
    changed = replace(claim_of(sides, who), **changes)
    parts = (b"claim", changed.task.encode(), changed.participant.encode(), str(changed.amount).encode())
    body = b"crowdfl 1" + b"".join(len(part).to_bytes(4, "big") + part for part in parts)
    return replace(changed, signature=sides.people[who].signing.sign(body)).to_bytes()


def pay(sides, claim):
    """The whole way of a claim."""
    sides.sp.check_claim(claim)
    return sides.sp.pay(claim, sides.csp.answer(claim))


def test_the_true_amount_is_paid(sides):
    """Both rounds together, to the millionth, and the budgets cover it."""
    paid = {who: pay(sides, sides.people[who].claim()) for who in sides.people}
    assert paid == {who: earned(sides, who) for who in sides.people}
    assert 2 * BUDGET - 12 <= sum(paid.values()) <= 2 * BUDGET


def test_a_claim_is_paid_once(sides):
    """The same bytes again, and a new claim of the same amount, are refused; CSP need not even be asked."""
    claim = sides.people["p0"].claim()
    attestation = sides.csp.answer(claim)
    sides.sp.pay(claim, attestation)
    with pytest.raises(AlreadyPaid):
        sides.sp.pay(claim, attestation)
    with pytest.raises(AlreadyPaid):
        sides.sp.check_claim(sides.people["p0"].claim())


@pytest.mark.parametrize("difference", [1, -1, 10**6])
def test_another_amount_is_refused(sides, difference):
    """Though its owner signs it: the masks do not make it."""
    claim = signed(sides, "p0", amount=earned(sides, "p0") + difference)
    with pytest.raises(WrongAmount):
        pay(sides, claim)
    assert pay(sides, sides.people["p0"].claim()) == earned(sides, "p0")


def test_an_amount_changed_after_signing_is_refused(sides):
    """By both servers."""
    claim = replace(claim_of(sides, "p0"), amount=1).to_bytes()
    for server in (sides.sp.check_claim, sides.csp.answer):
        with pytest.raises(BadSignature):
            server(claim)


def test_other_masks_are_refused(sides):
    """A mask one higher would lower the amount by one; another participant's are not this one's."""
    own, other = claim_of(sides, "p0"), claim_of(sides, "p1")
    for changes in (
        {"masks": (own.masks[0] - 1, own.masks[1]), "amount": own.amount + 1},
        {"masks": own.masks[::-1]},
        {"salts": own.salts[::-1]},
        {"salts": (bytes(32), own.salts[1])},
        {"masks": other.masks, "salts": other.salts, "amount": other.amount},
    ):
        with pytest.raises(MasksDoNotFit):
            sides.csp.answer(signed(sides, "p0", **changes))


def test_another_participants_claim_is_refused(sides):
    """Its signature under one's own name, and its name under one's own signature."""
    other = claim_of(sides, "p1")
    for claim in (replace(other, participant="p0").to_bytes(), signed(sides, "p0", participant="p1")):
        for server in (sides.sp.check_claim, sides.csp.answer):
            with pytest.raises(BadSignature):
                server(claim)


def test_an_unknown_participant_is_refused(sides):
    """Nobody enrolled it."""
    for server in (sides.sp.check_claim, sides.csp.answer):
        with pytest.raises(ClaimRefused, match="took no part"):
            server(signed(sides, "p0", participant="stranger"))


def test_a_claim_of_another_task_is_refused(sides):
    """Signed for another task, by the same participant."""
    for server in (sides.sp.check_claim, sides.csp.answer):
        with pytest.raises(ClaimRefused, match="another"):
            server(signed(sides, "p0", task="another"))


def test_a_round_claimed_twice_is_refused(sides):
    """In one claim."""
    own = claim_of(sides, "p0")
    doubled = {name: getattr(own, name)[:1] * 2 for name in ("contexts", "masks", "salts")}
    with pytest.raises(ClaimRefused, match="twice"):
        sides.csp.answer(signed(sides, "p0", **doubled))


def test_lists_of_different_lengths_are_refused(sides):
    """Rounds, masks and salts go together."""
    own = claim_of(sides, "p0")
    for changes in ({"masks": own.masks[:1]}, {"salts": ()}, {"contexts": own.contexts[:1]}):
        with pytest.raises(ClaimRefused, match="number"):
            sides.csp.answer(signed(sides, "p0", **changes))


def test_a_round_that_paid_nothing_is_refused(sides):
    """No reward is kept for it."""
    own = claim_of(sides, "p0")
    with pytest.raises(MasksDoNotFit):
        sides.csp.answer(signed(sides, "p0", contexts=(own.contexts[0], b"round 9")))


def test_one_round_of_two_may_be_claimed(sides):
    """The amount is that round's."""
    own, person = claim_of(sides, "p0"), sides.people["p0"]
    amount = person._rewards[own.contexts[1]] >> sides.sp._shape.widths().fraction
    part = signed(sides, "p0", contexts=own.contexts[1:], masks=own.masks[1:], salts=own.salts[1:], amount=amount)
    assert pay(sides, part) == amount


def test_a_forged_attestation_is_refused(sides):
    """SP pays on CSP's word alone, and knows CSP's key."""
    claim = sides.people["p0"].claim()
    good = Attestation.from_bytes(sides.csp.answer(claim), sides.sp.party.limits(1))
    parts = (b"attestation", good.task.encode(), b"p0", str(good.amount).encode())
    body = b"crowdfl 1" + b"".join(len(part).to_bytes(4, "big") + part for part in parts)
    for forged in (
        replace(good, signature=SigningKey.fresh().sign(body)),
        replace(good, signature=bytes(64)),
        replace(good, signature=b""),
        replace(good, amount=good.amount + 1),
    ):
        with pytest.raises(BadSignature):
            sides.sp.pay(claim, forged.to_bytes())
    assert sides.sp.pay(claim, good.to_bytes()) == good.amount


def test_an_attestation_of_another_claim_is_refused(sides):
    """Genuine, but not of this claim."""
    attestation = sides.csp.answer(sides.people["p1"].claim())
    with pytest.raises(ClaimRefused, match="another claim"):
        sides.sp.pay(sides.people["p0"].claim(), attestation)


def test_a_claims_own_signature_is_no_attestation(sides):
    """The two are signed for different purposes."""
    claim = claim_of(sides, "p0")
    forged = Attestation(claim.task, claim.participant, claim.amount, claim.signature)
    with pytest.raises(BadSignature):
        sides.sp.pay(claim.to_bytes(), forged.to_bytes())


def test_a_damaged_claim_is_refused(sides):
    """By name."""
    claim = sides.people["p0"].claim()
    with pytest.raises(FormatError):
        sides.sp.check_claim(claim[:-1])


def test_an_envelope_opens_for_its_owner_and_its_round_alone(sides):
    """Sealed to one reader."""
    envelopes = sides.sp.envelopes()
    with pytest.raises(SealBroken):
        sides.people["p1"].open_reward(envelopes["p0"], 2)
    with pytest.raises(SealBroken):
        sides.people["p0"].open_reward(envelopes["p0"], 1)


def test_rewards_of_strangers_are_not_sealed():
    """SP does not choose whom a reward is sealed to: without a certificate CSP refuses."""
    sides = deal(3, 2, **(SMALL | {"max_participants": 4}))
    for i, who in enumerate(sides.people):
        sides.sp.add(who, sides.upload([0.1 * i, 0.5], 3, who))
    sides.sp.add("sybil", sides.upload([0.0, 0.0], 1, "p0"))
    converse(sides.sp.publish(final=False), sides.csp.answer)
    with pytest.raises(CrowdFLError, match="sybil"):
        converse(sides.sp.reward(BUDGET), sides.csp.answer)


def test_a_federation_pays_claims():
    """On one page: rounds, then money."""
    fed = federation(**(SMALL | {"max_participants": 3}))
    work = updates([[0.1, 0.2], [0.2, 0.2], [0.9, 0.9]], [3, 4, 5])
    first, second = (fed.round(work, budget=budget).rewards for budget in ("36", "0.5"))
    assert fed.claim("p1") == first["p1"] + second["p1"]
    assert isinstance(fed.claim("p2"), Decimal)
    with pytest.raises(AlreadyPaid):
        fed.claim("p1")


def test_a_federation_refuses_a_strangers_claim():
    """By name, as the servers do."""
    with pytest.raises(CrowdFLError):
        federation().claim("stranger")


def test_the_paper_has_no_claims():
    """Refused at every step, with a hint."""
    sides = deal(3, 2, profile="paper")
    for step in (sides.people["p0"].claim, lambda: sides.sp.check_claim(b""), lambda: sides.sp.pay(b"", b"")):
        with pytest.raises(ClaimRefused, match="hardened"):
            step()


def test_a_task_without_rewards_has_no_claims():
    """lanes=0 leaves nothing to claim, at the participant and at CSP."""
    sides = deal(3, 2)
    with pytest.raises(RewardsOff):
        sides.people["p0"].claim()
    with pytest.raises(FormatError):
        sides.csp.answer(Claim("task", "p0", 0, (), (), (), b"").to_bytes())
