"""Claims: the true amount is attested, each round once, anything else is refused by name.

Envelopes: a phone opens what CSP has sealed and signed for it, this round and this very mask, and nothing else."""

import dataclasses
from dataclasses import replace
from decimal import Decimal

import pytest

from crowdfl.crypto.commitment import commit
from crowdfl.crypto.sealing import seal_to
from crowdfl.crypto.signing import SigningKey
from crowdfl.errors import (
    BadSignature,
    ClaimRefused,
    CrowdFLError,
    FormatError,
    LengthMismatch,
    MasksDoNotFit,
    OlderDestination,
    OutOfTurn,
    RewardOutOfRange,
    RewardsOff,
    RoundsExhausted,
    SealBroken,
    WrongAmount,
)
from crowdfl.protocols import claim_steps
from crowdfl.protocols.claim_steps import claim_bytes
from crowdfl.protocols.claims import (
    Attestation,
    Beside,
    Claim,
    KeptClaim,
    KeptReward,
    PayStatement,
    reward_context,
    reward_statement,
)
from crowdfl.protocols.hardened.manifest import ManifestRequest
from crowdfl.protocols.hardened.order import HardenedRound, end_round
from crowdfl.protocols.hardened.prirwd import RewardRequest
from crowdfl.protocols.messages import Message
from crowdfl.protocols.records import Look
from tests.protocols.driving import SMALL, SMALL_PAPER, deal, federation, updates
from tests.protocols.settled import BUDGET, claim_of, earned, settle, signed, unclaimed
from tests.protocols.test_messages import descendants


@pytest.fixture
def sides(settled):
    """The settled task with a CSP that has attested nothing yet."""
    with unclaimed(settled):
        yield settled


@pytest.fixture(scope="module")
def settled():
    return settle()


def pay(sides, claim):
    sides.sp.check_claim(claim)
    return sides.sp.attested(claim, sides.csp.answer(claim)).amounts


def said(sides, claim):
    """CSP's word to the payer."""
    return sides.sp.attested(claim, sides.csp.answer(claim)).statement


def test_the_true_amount_is_paid(sides):
    """Round by round, to the millionth, and each budget covers it."""
    paid = {who: pay(sides, sides.people[who].claim()) for who in sides.people}
    assert paid == {who: earned(sides, who) for who in sides.people}
    for number in (1, 2):
        assert BUDGET - 6 <= sum(amounts[number] for amounts in paid.values()) <= BUDGET


WHERE, ELSEWHERE = b"w" * 32, b"e" * 32  # hashes of sealed destinations


def changes_of(claim):
    """One change to each thing that a claim says."""
    return {
        "task": "another",
        "participant": "p1",
        "rounds": (claim.rounds[0], 3),
        "amounts": (claim.amounts[0], claim.amounts[1] + 1),
        "masks": (claim.masks[0] + 1, claim.masks[1]),
        "salts": (claim.salts[0], bytes(32)),
        "shown": (claim.shown[0], bytes(32)),
        "unused": (3,),
        "destination": WHERE,
        "counter": 1,
    }


@pytest.mark.parametrize("field", ["rounds", "amounts", "masks", "salts", "shown", "unused", "destination", "counter"])
def test_the_signature_covers_everything(sides, field):
    """What is changed after signing is refused by both servers, whoever changed it."""
    claim = claim_of(sides, "p0")
    named = {"destination": {"counter": 1}, "counter": {"destination": WHERE}}.get(field, {})  # else its form is wrong
    changed = replace(claim, **{field: changes_of(claim)[field]}, **named).to_bytes()
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
    names = ("rounds", "amounts", "masks", "salts", "shown")
    return {name: tuple(getattr(claim, name)[place] for place in places) for name in names}


def moved(own, difference):
    return {"amounts": (own.amounts[0] + difference, own.amounts[1])}


# Signed by p0: what it changes in its claim, given its own and another's; and what CSP says to it.
FALSE = {
    **{f"{d} more": (lambda own, _, d=d: moved(own, d), WrongAmount) for d in (1, -1, 10**6)},
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
    **{f"round {n}": (lambda _own, _, n=n: {"rounds": (1, n)}, MasksDoNotFit) for n in (3, 9, 2**30)},
    "round 0": (lambda _own, _: {"rounds": (0, 1)}, MasksDoNotFit),
    "a round twice": (lambda own, _: part_of(own, 0, 0), ClaimRefused),
    "rounds out of order": (lambda own, _: part_of(own, 1, 0), ClaimRefused),
    "an unused round twice": (lambda _own, _: {"unused": (4, 4)}, ClaimRefused),
    "unused rounds out of order": (lambda _own, _: {"unused": (4, 3)}, ClaimRefused),
    "a round as earned and as unused": (lambda _own, _: {"unused": (2,)}, ClaimRefused),
    **{
        f"{len(where)} bytes as destination {counter}": (
            lambda _own, _, w=where, c=counter: {"destination": w, "counter": c},
            ClaimRefused,
        )
        for where, counter in ((b"", 1), (WHERE, 0), (WHERE[:31], 1))
    },
    **{
        f"{count} {name}": (lambda own, _, n=name, c=count: {n: getattr(own, n)[:c]}, ClaimRefused)
        for name in ("rounds", "amounts", "masks", "salts", "shown")
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


LONGER = {
    "task": "a" * 65,
    "participant": "p" * 65,
    "rounds": (1, 2**32),
    "amounts": (1, 2**128),
    "masks": (1, 2 ** (SMALL["key_bits"])),
    "salts": (b"", bytes(33)),
    "shown": (b"", bytes(SMALL["key_bits"] // 8 + 65)),
    "unused": (2**32,),
    "destination": WHERE + b"w",
    "counter": 2**32,
    "signature": bytes(65),
}


@pytest.mark.parametrize("field", LONGER)
def test_a_field_that_is_longer_than_declared_is_refused(sides, field):
    """By both servers, before anything is compared or a signature looked at; the true claim is attested after."""
    claim = replace(claim_of(sides, "p0"), **{field: LONGER[field]}).to_bytes()
    for server in (sides.sp.check_claim, sides.csp.answer):
        with pytest.raises(LengthMismatch):
            server(claim)
    assert Look(sides.csp.records).get(KeptClaim, who="p0") is None
    assert pay(sides, sides.people["p0"].claim()) == earned(sides, "p0")


def test_claims_and_what_answers_them_have_the_fields_that_are_declared():
    found = {cls.kind: cls for cls in descendants(Message)}
    pairs = [(one.kind, one.request) for one in claim_steps.STEPS] + [
        (one.answer, one.reply) for one in claim_steps.STEPS
    ]
    for kind, parts in (*pairs, (PayStatement.kind, claim_steps.STATEMENT)):
        assert [part.name for part in parts] == [one.name for one in dataclasses.fields(found[kind])], found[kind]


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


def test_rounds_are_claimed_one_after_the_other_and_none_forfeits_another(sides):
    """Each statement to the payer has all that was attested so far, whatever the claim names; the others have theirs."""
    own = claim_of(sides, "p0")
    first, second = own.amounts
    for places, sequence, total in (
        ((), 0, 0),
        ((1,), 1, second),
        ((0,), 2, first + second),
    ):
        word = said(sides, signed(sides, "p0", **part_of(own, *places)))
        assert (word.sequence, word.total, word.participant, word.currency) == (sequence, total, "p0", "EUR")
    assert said(sides, own.to_bytes()) == word
    assert pay(sides, sides.people["p1"].claim()) == earned(sides, "p1")


def test_what_was_attested_stands(sides):
    """A round is attested with one amount, also by a CSP that has no more than its records of what it attested."""
    own = claim_of(sides, "p0")
    sides.csp.answer(own.to_bytes())
    look = Look(sides.csp.records)
    for number in own.rounds:
        look.erase(HardenedRound, number)
    sides.csp.records.set(look)
    again = sides.fresh_csp()
    again.records = sides.csp.records.copy()
    with pytest.raises(WrongAmount):
        again.answer(signed(sides, "p0", **moved(own, 1)))
    more = claim_of(sides, "p0", Beside((3,), WHERE, 1)).to_bytes()
    assert sides.sp.attested(more, again.answer(more)).statement.total == sum(own.amounts)


def test_a_csp_that_has_lost_what_it_attested_says_the_same_again(sides):
    claim = claim_of(sides, "p0", Beside((3,), WHERE, 4)).to_bytes()
    before = sides.csp.records.copy()
    attestation = sides.csp.answer(claim)
    sides.csp.records = before
    assert sides.csp.answer(claim) == attestation


def test_a_newer_destination_counts_on_and_an_older_one_is_refused(sides):
    """By name, and so is another one under the same number; nothing is attested with it."""
    words = [
        said(sides, claim_of(sides, "p0", Beside((), where, counter)).to_bytes())
        for where, counter in ((b"", 0), (WHERE, 1), (ELSEWHERE, 2))
    ]
    assert [(word.sequence, word.destination, word.counter) for word in words] == [
        (2, b"", 0),
        (3, WHERE, 1),
        (4, ELSEWHERE, 2),
    ]
    kept = Look(sides.csp.records).get(KeptClaim, who="p0")
    for where, counter in ((WHERE, 1), (b"n" * 32, 1), (WHERE, 2), (b"", 0)):
        with pytest.raises(OlderDestination, match="number 2"):
            sides.csp.answer(claim_of(sides, "p0", Beside((5,), where, counter)).to_bytes())
    assert Look(sides.csp.records).get(KeptClaim, who="p0") == kept


def test_a_claim_may_name_a_destination_alone(sides):
    own = claim_of(sides, "p0")
    word = said(sides, signed(sides, "p0", **part_of(own), destination=WHERE, counter=3))
    assert (word.sequence, word.total, word.destination, word.counter) == (3, 0, WHERE, 3)


def test_the_longest_claim_fits_what_is_read(sides):
    """With every round as earned, and with some as unused."""
    own = claim_of(sides, "p0")
    size = claim_bytes(2, sides.task.public.plaintext_bytes)
    for places, unused in (((0, 1), ()), ((0,), (2,)), ((), (1, 2))):
        changes = {**part_of(own, *places), "unused": unused, "destination": WHERE, "counter": 2**32 - 1}
        assert len(signed(sides, "p0", **changes)) <= size


def test_one_round_of_two_may_be_claimed(sides):
    own = claim_of(sides, "p0")
    assert pay(sides, signed(sides, "p0", **part_of(own, 1))) == {2: own.amounts[1]}


def test_a_void_round_attests_nothing(sides):
    """Of a round that CSP has ended before anything was opened no rewards are paid; those of the others are. SP cannot end one
    that was opened."""
    look = Look(sides.csp.records)
    end_round(look, 1)
    assert sides.csp.side.reward(look, 1, "p0") is not None
    look.put(replace(look.get(HardenedRound, 1), opened=0), 1)
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
        replace(good, signature=SigningKey.fresh().sign(good.attested)),
        replace(good, signature=sides.csp.signing.sign(good.claim)),
        replace(good, signature=bytes(64)),
        replace(good, signature=b""),
        replace(good, signature=claim_of(sides, "p0").signature),  # of a claim, for another purpose
        replace(good, statement=good.statement[:-1] + bytes([good.statement[-1] ^ 1])),
    ):
        with pytest.raises(BadSignature):
            sides.sp.attested(claim, forged.to_bytes())
    with pytest.raises(ClaimRefused, match="another claim"):
        sides.sp.attested(claim, replace(good, claim=bytes(32)).to_bytes())
    assert sides.sp.attested(claim, good.to_bytes()).amounts == earned(sides, "p0")


def test_an_attestation_of_another_claim_is_refused(sides):
    """Genuine, but not of this claim: another participant's, or another one of the same participant."""
    attestation = sides.csp.answer(sides.people["p1"].claim())
    for claim in (sides.people["p0"].claim(), signed(sides, "p1", **part_of(claim_of(sides, "p1"), 0))):
        with pytest.raises(ClaimRefused, match="another claim"):
            sides.sp.attested(claim, attestation)


def with_word(sides, claim, key=None, **changes):
    """CSP's attestation of a claim, with other words to the payer, signed anew."""
    attestation = Attestation.from_bytes(sides.csp.answer(claim), sides.sp.party.limits(1))
    word = replace(PayStatement.open(attestation.statement, sides.csp.signing.public), **changes)
    statement = replace(word, signature=(key or sides.csp.signing).sign(word.statement)).to_bytes()
    found = replace(attestation, statement=statement)
    return replace(found, signature=sides.csp.signing.sign(found.attested)).to_bytes()


def test_what_csp_says_to_the_payer_is_of_the_claim(sides):
    """SP takes no attestation with other words: the payer would pay another amount, or elsewhere."""
    claim = claim_of(sides, "p0", Beside((), WHERE, 1)).to_bytes()
    word = said(sides, claim)
    changes = {"task": "another", "participant": "p1", "currency": "INR", "destination": ELSEWHERE, "counter": 2}
    less = {"total": word.total - 1, "sequence": word.sequence - 1}
    for name, value in (changes | less).items():
        with pytest.raises(ClaimRefused):
            sides.sp.attested(claim, with_word(sides, claim, **{name: value}))
    with pytest.raises(BadSignature):
        sides.sp.attested(claim, with_word(sides, claim, SigningKey.fresh()))
    more = sides.sp.attested(claim, with_word(sides, claim, total=word.total + 5)).statement
    assert more.total == word.total + 5  # an earlier claim may have named more rounds


def test_the_word_to_the_payer_differs_for_every_field(sides):
    word = said(sides, sides.people["p0"].claim())
    changes = {"task": "t", "participant": "p1", "sequence": 9, "total": 9, "currency": "INR"}
    changes |= {"destination": WHERE, "counter": 9}
    assert set(changes) | {"signature"} == {part.name for part in dataclasses.fields(word)}
    statements = {replace(word, **{name: value}).statement for name, value in changes.items()}
    assert len(statements | {word.statement}) == len(changes) + 1


def test_a_claim_says_nothing_where_it_is_printed(sides):
    """Amounts are for who reads them."""
    claim = claim_of(sides, "p0")
    word = said(sides, claim.to_bytes())
    assert not any(str(one) in repr(claim) + repr(word) for one in (*claim.amounts, word.total))


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
        assert pay(sides, claim)[1] == BUDGET


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
    for envelope in (resealed(sides, "p0", 2), resealed(sides, "p0", 2, signing=sides.csp.signing)):
        assert sides.people["p0"].open_reward(envelope.to_bytes(), 2) == earned(sides, "p0")[2]


def test_a_reward_that_csp_has_not_signed_is_refused_by_the_phone(sides):
    """SP knows the phone's public key and could seal any number to it."""
    csp, million = sides.csp.signing, 10**6 << sides.sp._shape.widths().fraction
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
        envelope = resealed(sides, "p0", 2, value=reward, signing=sides.csp.signing)
        with pytest.raises(RewardOutOfRange):
            person.open_reward(envelope.to_bytes(), 2)
    assert person.claim() == before
    largest = sides.sp._shape.widths().largest_payment
    edge = resealed(sides, "p0", 2, value=largest << sides.sp._shape.widths().fraction, signing=sides.csp.signing)
    try:
        assert person.open_reward(edge.to_bytes(), 2) == largest
    finally:
        person.open_reward(sides.sp.envelopes()["p0"], 2)


def test_rewards_of_strangers_are_not_sealed():
    """SP does not choose whom a reward is sealed to: without a certificate CSP refuses."""
    sides = deal(3, 2, **(SMALL | {"max_participants": 4}))
    for i, who in enumerate(sides.people):
        sides.sp.add_all({who: sides.upload([0.1 * i, 0.5], 3, who)})
    with pytest.raises(CrowdFLError, match="sybil"):  # an SP that follows the protocol does not take it either
        sides.sp.add_all({"sybil": sides.upload([0.0, 0.0], 1, "p0")})
    honest = ManifestRequest.from_bytes(sides.manifest(1, BUDGET), sides.csp.party.limits(1))
    names, more = (*honest.participants, "sybil"), ((*one, one[0]) for one in (honest.digests, honest.signatures))
    with_another = ManifestRequest(1, BUDGET, names, *more).to_bytes()
    with pytest.raises(CrowdFLError, match="sybil"):
        sides.csp.answer(with_another)
    assert sides.csp.party.view.entries == []


@pytest.mark.parametrize("settings", [SMALL, SMALL_PAPER], ids=["hardened", "paper"])
def test_a_federation_pays_claims(settings):
    fed = federation(**(settings | {"max_participants": 3}))
    work = updates([[0.1, 0.2], [0.2, 0.2], [0.9, 0.9]], [3, 4, 5])
    first, second = (fed.round(work, budget=budget).rewards for budget in ("36", "0.5"))
    assert fed.claim("p1") == first["p1"] + second["p1"]
    assert isinstance(fed.claim("p2"), Decimal)
    assert fed.claim("p1") == first["p1"] + second["p1"]  # the same again


def test_a_task_without_rewards_has_no_claims():
    """lanes=0 leaves nothing to claim, at the participant and at CSP."""
    sides = deal(3, 2)
    with pytest.raises(RewardsOff):
        sides.people["p0"].claim()
    with pytest.raises(FormatError):
        sides.csp.answer(Claim("task", "p0", (), (), (), (), (), (), b"", 0, b"").to_bytes())
