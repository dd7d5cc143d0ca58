"""Claims: the true amount is paid once, anything else is refused by name. Envelopes: a phone opens what CSP has sealed and
signed for it, this round and this very mask, and nothing else."""

import dataclasses
from dataclasses import replace
from decimal import Decimal

import pytest

from crowdfl.crypto.sealing import SigningKey, commit, seal_to
from crowdfl.errors import (
    AlreadyPaid,
    BadSignature,
    ClaimRefused,
    CrowdFLError,
    FormatError,
    MasksDoNotFit,
    OutOfTurn,
    RewardOutOfRange,
    RewardsOff,
    RoundsExhausted,
    SealBroken,
    WrongAmount,
)
from crowdfl.protocols.claims import Attestation, Claim, KeptReward, reward_context, reward_statement
from crowdfl.protocols.hardened.prirwd import RewardRequest
from crowdfl.protocols.hardened.shape import end_round
from crowdfl.protocols.records import Look
from tests.protocols.driving import SMALL, SMALL_PAPER, converse, deal, federation, updates
from tests.protocols.settled import BUDGET, claim_of, earned, settle, signed, unclaimed


@pytest.fixture
def sides(settled):
    """The settled task with an SP that has paid nobody, and a CSP that has attested nothing, yet."""
    with unclaimed(settled):
        yield settled


@pytest.fixture(scope="module")
def settled():
    return settle()


def pay(sides, claim):
    sides.sp.check_claim(claim)
    return sides.sp.pay(claim, sides.csp.answer(claim))


def test_the_true_amount_is_paid(sides):
    """Round by round, to the millionth, and each budget covers it."""
    paid = {who: pay(sides, sides.people[who].claim()) for who in sides.people}
    assert paid == {who: earned(sides, who) for who in sides.people}
    for number in (1, 2):
        assert BUDGET - 6 <= sum(amounts[number] for amounts in paid.values()) <= BUDGET


def test_a_claim_is_paid_once(sides):
    """The same bytes again, and a new claim of the same amount, are refused; CSP need not even be asked."""
    claim = sides.people["p0"].claim()
    attestation = sides.csp.answer(claim)
    sides.sp.pay(claim, attestation)
    with pytest.raises(AlreadyPaid):
        sides.sp.pay(claim, attestation)
    with pytest.raises(AlreadyPaid):
        sides.sp.check_claim(sides.people["p0"].claim())


def changes_of(claim):
    """One change to each thing that a claim says."""
    return {
        "task": "another",
        "participant": "p1",
        "rounds": (claim.rounds[0], 3),
        "amounts": (claim.amounts[0], claim.amounts[1] + 1),
        "masks": (claim.masks[0] + 1, claim.masks[1]),
        "salts": (claim.salts[0], bytes(32)),
    }


@pytest.mark.parametrize("field", ["rounds", "amounts", "masks", "salts"])
def test_the_signature_covers_everything(sides, field):
    """What is changed after signing is refused by both servers, whoever changed it."""
    claim = claim_of(sides, "p0")
    changed = replace(claim, **{field: changes_of(claim)[field]}).to_bytes()
    for server in (sides.sp.check_claim, sides.csp.answer):
        with pytest.raises(BadSignature):
            server(changed)


def test_the_statement_differs_for_every_field(sides):
    """No two claims with different contents sign the same bytes; all fields but the signature are in it."""
    claim = claim_of(sides, "p0")
    changes = changes_of(claim)
    assert set(changes) | {"signature"} == {part.name for part in dataclasses.fields(claim)}
    statements = {replace(claim, **{name: value}).statement for name, value in changes.items()}
    assert len(statements | {claim.statement}) == len(changes) + 1
    assert replace(claim, signature=b"other").statement == claim.statement


def part_of(claim, *places):
    """The fields of a claim for some of its rounds."""
    names = ("rounds", "amounts", "masks", "salts")
    return {name: tuple(getattr(claim, name)[place] for place in places) for name in names}


def moved(own, difference):
    return {"amounts": (own.amounts[0] + difference, own.amounts[1])}


# Signed by p0: what it changes in its claim, given its own and another's; and what CSP says to it.
FALSE = {
    **{f"{d} more": (lambda own, _, d=d: moved(own, d), WrongAmount) for d in (1, -1, 10**6, 2**140)},
    "a millionth of another round": (
        lambda own, _: {"amounts": (own.amounts[0] - 1, own.amounts[1] + 1)},
        WrongAmount,
    ),
    "another mask": (lambda own, _: moved(own, 1) | {"masks": (own.masks[0] - (1 << 20), own.masks[1])}, MasksDoNotFit),
    "masks exchanged": (lambda own, _: {"masks": own.masks[::-1]}, MasksDoNotFit),
    "salts exchanged": (lambda own, _: {"salts": own.salts[::-1]}, MasksDoNotFit),
    "another salt": (lambda own, _: {"salts": (bytes(32), own.salts[1])}, MasksDoNotFit),
    "another's rewards": (
        lambda _, other: {name: getattr(other, name) for name in ("masks", "salts", "amounts")},
        MasksDoNotFit,
    ),
    **{f"round {n}": (lambda _own, _, n=n: {"rounds": (1, n)}, MasksDoNotFit) for n in (0, 3, 9, 2**70)},
    "a round twice": (lambda own, _: part_of(own, 0, 0), ClaimRefused),
    **{
        f"{count} {name}": (lambda own, _, n=name, c=count: {n: getattr(own, n)[:c]}, ClaimRefused)
        for name in ("rounds", "amounts", "masks", "salts")
        for count in (0, 1)
    },
}


@pytest.mark.parametrize(("change", "refusal"), FALSE.values(), ids=FALSE.keys())
def test_a_false_claim_is_refused_though_its_owner_signs_it(sides, change, refusal):
    """Nothing is attested: the true claim still is."""
    changes = change(claim_of(sides, "p0"), claim_of(sides, "p1"))
    with pytest.raises(refusal):
        sides.csp.answer(signed(sides, "p0", **changes))
    assert pay(sides, sides.people["p0"].claim()) == earned(sides, "p0")


def test_a_claim_is_of_its_owner_and_its_task(sides):
    others = replace(claim_of(sides, "p1"), participant="p0").to_bytes(), signed(sides, "p0", participant="p1")
    stranger, elsewhere = signed(sides, "p0", participant="stranger"), signed(sides, "p0", task="another")
    for server in (sides.sp.check_claim, sides.csp.answer):
        for claim in others:
            with pytest.raises(BadSignature):
                server(claim)
        with pytest.raises(ClaimRefused, match="took no part"):
            server(stranger)
        with pytest.raises(ClaimRefused, match="another"):
            server(elsewhere)


def test_one_claim_of_each_participant_is_attested(sides):
    """Another that is as true is refused; the same gets the same again; the others have theirs."""
    own = claim_of(sides, "p0")
    first = sides.csp.answer(own.to_bytes())
    for places in ((0,), (1,), (1, 0), ()):
        with pytest.raises(ClaimRefused, match="another claim of p0"):
            sides.csp.answer(signed(sides, "p0", **part_of(own, *places)))
    assert sides.csp.answer(own.to_bytes()) == first
    assert pay(sides, sides.people["p1"].claim()) == earned(sides, "p1")


def test_one_attestation_outlives_a_crash(sides):
    """It is the memory that knows, not the process."""
    own = claim_of(sides, "p0")
    sides.csp.answer(signed(sides, "p0", **part_of(own, 0)))
    again = sides.fresh_csp()
    again.records = sides.csp.records.copy()
    with pytest.raises(ClaimRefused, match="another claim"):
        again.answer(own.to_bytes())


def test_one_round_of_two_may_be_claimed(sides):
    own = claim_of(sides, "p0")
    assert pay(sides, signed(sides, "p0", **part_of(own, 1))) == {2: own.amounts[1]}


def test_a_void_round_attests_nothing(sides):
    """Once CSP has ended a round, its rewards are not paid; those of the others are."""
    look = Look(sides.csp.records)
    end_round(look, 1)
    sides.csp.records.set(look)
    own = claim_of(sides, "p0")
    with pytest.raises(MasksDoNotFit, match="round 1"):
        sides.csp.answer(own.to_bytes())
    assert pay(sides, signed(sides, "p0", **part_of(own, 1))) == {2: own.amounts[1]}


def test_a_forged_attestation_is_refused(sides):
    """SP pays on CSP's word alone, and knows CSP's key."""
    claim = sides.people["p0"].claim()
    good = Attestation.from_bytes(sides.csp.answer(claim), sides.sp.party.limits(1))
    for forged in (
        replace(good, signature=SigningKey.fresh().sign(b"crowdfl attestation 2" + good.claim)),
        replace(good, signature=sides.csp._signing.sign(good.claim)),
        replace(good, signature=bytes(64)),
        replace(good, signature=b""),
        replace(good, signature=claim_of(sides, "p0").signature),  # of a claim, for another purpose
    ):
        with pytest.raises(BadSignature):
            sides.sp.pay(claim, forged.to_bytes())
    with pytest.raises(ClaimRefused, match="another claim"):
        sides.sp.pay(claim, replace(good, claim=bytes(32)).to_bytes())
    assert sides.sp.pay(claim, good.to_bytes()) == earned(sides, "p0")


def test_an_attestation_of_another_claim_is_refused(sides):
    """Genuine, but not of this claim: another participant's, or another one of the same participant."""
    attestation = sides.csp.answer(sides.people["p1"].claim())
    for claim in (sides.people["p0"].claim(), signed(sides, "p1", **part_of(claim_of(sides, "p1"), 0))):
        with pytest.raises(ClaimRefused, match="another claim"):
            sides.sp.pay(claim, attestation)


@pytest.mark.parametrize("amount", [-1, BUDGET, BUDGET + 1, BUDGET + 10**6])
def test_a_reward_outside_its_budget_is_not_attested(sides, amount):
    """Whatever CSP has kept, and though the mask makes that amount; the budget itself is."""
    own, fraction = claim_of(sides, "p0"), sides.sp._shape.widths().fraction
    n = int(sides.task.public.n)
    look = Look(sides.csp.records)
    kept = look.get(KeptReward, 1, who="p0")
    masked = ((amount << fraction) + own.masks[0]) % n
    look.put(replace(kept, masked=masked), 1, who="p0")
    sides.csp.records.set(look)
    for claimed in {max(0, amount), 0, own.amounts[0]} - {BUDGET}:
        with pytest.raises(WrongAmount):
            sides.csp.answer(signed(sides, "p0", amounts=(claimed, own.amounts[1])))
    if amount == BUDGET:
        claim = signed(sides, "p0", amounts=(BUDGET, own.amounts[1]))
        assert sides.sp.pay(claim, sides.csp.answer(claim))[1] == BUDGET


def test_kept_rewards_are_written_once(sides):
    """CSP refuses to open rewards of a round again, with the same names or others: what it keeps stays."""
    before = dict(sides.csp.records.records)
    masked = sides.sp.party.encrypt([0] * 3)
    request = RewardRequest(2, masked, sides.sp.party.partial_decrypt(masked), (bytes(32),) * 3)
    with pytest.raises(OutOfTurn):
        sides.csp.answer(request.to_bytes())
    with pytest.raises(RoundsExhausted):
        sides.csp.answer(replace(request, round_number=6).to_bytes())
    assert sides.csp.records.records == before


def test_an_envelope_opens_for_its_owner_and_its_round_alone(sides):
    envelopes = sides.sp.envelopes()
    with pytest.raises(SealBroken):
        sides.people["p1"].open_reward(envelopes["p0"], 2)
    with pytest.raises(SealBroken):
        sides.people["p0"].open_reward(envelopes["p0"], 1)


def resealed(sides, who, number, *, value=None, signing=None, context=None, named=None, commitment=None):
    """An envelope of round `number` that SP seals itself: with CSP's word in it, or a word of its own, altered in one place."""
    person = sides.people[who]
    envelope = person._envelopes[number]
    right = sides.task.context(number)
    body = person.reader.open(envelope.sealed, reward_context(right, who))
    width = sides.sp.party.public.plaintext_bytes
    v, signature = body[:width], body[width:]
    v = v if value is None else ((value + envelope.mask) % int(sides.task.public.n)).to_bytes(width, "big")
    if signing is not None:
        statement = reward_statement(
            context or right, named or who, commitment or commit(envelope.mask, envelope.salt), v
        )
        signature = signing.sign(statement)
    sealed = seal_to(person.reader.public, v + signature, reward_context(right, who))
    return replace(envelope, sealed=sealed)


def test_an_envelope_that_csp_has_sealed_anew_opens(sides):
    """So that the tests below can fail: what is altered there is what is refused."""
    for envelope in (resealed(sides, "p0", 2), resealed(sides, "p0", 2, signing=sides.csp._signing)):
        assert sides.people["p0"].open_reward(envelope.to_bytes(), 2) == earned(sides, "p0")[2]


def test_a_reward_that_csp_has_not_signed_is_refused_by_the_phone(sides):
    """SP knows the phone's public key and could seal any number to it."""
    csp, million = sides.csp._signing, 10**6 << sides.sp._shape.widths().fraction
    forgeries = {
        "another value": resealed(sides, "p0", 2, value=million),
        "SP's own signature": resealed(sides, "p0", 2, value=million, signing=SigningKey.fresh()),
        "another round": resealed(sides, "p0", 2, signing=csp, context=sides.task.context(1)),
        "another participant": resealed(sides, "p0", 2, signing=csp, named="p1"),
        "another commitment": resealed(sides, "p0", 2, signing=csp, commitment=commit(1, bytes(32))),
    }
    good = resealed(sides, "p0", 2)
    forgeries["another mask"] = replace(good, mask=good.mask - (1 << 20))
    forgeries["another salt"] = replace(good, salt=bytes(32))
    before = sides.people["p0"].claim()
    for envelope in forgeries.values():
        with pytest.raises(BadSignature):
            sides.people["p0"].open_reward(envelope.to_bytes(), 2)
    assert sides.people["p0"].claim() == before


def test_an_envelope_too_short_for_a_reward_is_refused(sides):
    """Sealed to the right reader for the right round."""
    person, context = sides.people["p0"], sides.task.context(2)
    sealed = seal_to(person.reader.public, b"short", reward_context(context, "p0"))
    with pytest.raises(SealBroken, match="no reward"):
        person.open_reward(replace(person._envelopes[2], sealed=sealed).to_bytes(), 2)


def rewards_outside(sides):
    """Rewards that no honest round gives, in millionths / 2^h: a unit below zero, one millionth above the largest payment."""
    widths = sides.sp._shape.widths()
    return [-1, (widths.largest_payment + 1) << widths.fraction, int(sides.task.public.n) // 2]


def test_a_reward_outside_its_budget_is_not_opened_by_the_phone(sides):
    """Though CSP has signed it: it is in no claim either."""
    person, before = sides.people["p0"], sides.people["p0"].claim()
    for reward in rewards_outside(sides):
        envelope = resealed(sides, "p0", 2, value=reward, signing=sides.csp._signing)
        with pytest.raises(RewardOutOfRange):
            person.open_reward(envelope.to_bytes(), 2)
    assert person.claim() == before
    largest = sides.sp._shape.widths().largest_payment
    edge = resealed(sides, "p0", 2, value=largest << sides.sp._shape.widths().fraction, signing=sides.csp._signing)
    try:
        assert person.open_reward(edge.to_bytes(), 2) == largest
    finally:
        person.open_reward(sides.sp.envelopes()["p0"], 2)


def test_rewards_of_strangers_are_not_sealed():
    """SP does not choose whom a reward is sealed to: without a certificate CSP refuses."""
    sides = deal(3, 2, **(SMALL | {"max_participants": 4}))
    for i, who in enumerate(sides.people):
        sides.sp.add_all({who: sides.upload([0.1 * i, 0.5], 3, who)})
    sides.sp.add_all({"sybil": sides.upload([0.0, 0.0], 1, "p0")})
    with pytest.raises(CrowdFLError, match="sybil"):
        converse(sides.sp.reward(BUDGET), sides.csp.answer)
    assert sides.csp.party.view.entries == []


def test_a_federation_pays_claims():
    fed = federation(**(SMALL | {"max_participants": 3}))
    work = updates([[0.1, 0.2], [0.2, 0.2], [0.9, 0.9]], [3, 4, 5])
    first, second = (fed.round(work, budget=budget).rewards for budget in ("36", "0.5"))
    assert fed.claim("p1") == first["p1"] + second["p1"]
    assert isinstance(fed.claim("p2"), Decimal)
    with pytest.raises(AlreadyPaid):
        fed.claim("p1")


def test_the_paper_has_no_claims():
    """Refused at every step, with a hint."""
    fed = federation(**(SMALL_PAPER | {"max_participants": 3}))
    fed.round(updates([[0.1, 0.2], [0.2, 0.2], [0.9, 0.9]], [3, 4, 5]), budget="36")
    sp, task = fed.host.sp, fed.task
    for step in (lambda: fed.claim("p0"), lambda: sp.claim(task, b""), lambda: sp.claim_limit(task)):
        with pytest.raises(ClaimRefused, match="hardened"):
            step()


def test_a_task_without_rewards_has_no_claims():
    """lanes=0 leaves nothing to claim, at the participant and at CSP."""
    sides = deal(3, 2)
    with pytest.raises(RewardsOff):
        sides.people["p0"].claim()
    with pytest.raises(FormatError):
        sides.csp.answer(Claim("task", "p0", (), (), (), (), b"").to_bytes())
