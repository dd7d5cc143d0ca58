"""An SP that asks where no honest round does: for rewards once a round was opened, and in rounds that nobody has signed for.

A lane below zero ends a round, which is a comparison, at the price of the round. A round that is over, or that never comes,
costs nothing. CSP takes the steps of a round in its order and by its manifest alone, in which everyone has signed for it.
"""

from collections.abc import Iterator
from dataclasses import replace

from crowdfl.crypto.paillier.vector import CipherVector
from crowdfl.errors import BadSignature, OutOfTurn, RoundEnded
from crowdfl.protocols.hardened import manifest, steps
from crowdfl.protocols.hardened.prirwd import LanesRequest
from crowdfl.protocols.hardened.shape import Shape
from crowdfl_lab.audit.finding import HARDENED, SAMPLES_OFF, WRONG_GUESSES, Attack, Finding
from crowdfl_lab.audit.recorded_round import (
    PAYMENT,
    SMALL_BOUNDS,
    SMALL_PEOPLE,
    HardenedParties,
    signed_manifest,
    small_parties,
    small_updates,
)
from crowdfl_lab.audit.shares.deviating_round import weakened

_VICTIM = "p1"
_MOST: int = SMALL_BOUNDS["max_samples"]
_ROUNDS = 6
_AFTER = Attack("signs after", "new", "signs, by SP once a round was opened", ("SP",), WRONG_GUESSES)
_NEVER = "a sample count, by SP that asks in rounds which never come"
_UNUSED = Attack("unused rounds", "new", _NEVER, ("SP",), SAMPLES_OFF)
_ORDER = steps.order_of


def attack_unsigned_rounds(key_bits: int = 1024) -> Iterator[Finding]:
    for subject in ("hardened, rewards after an opening", HARDENED):
        with weakened(subject, (steps, "order_of", _any_order)):
            yield _after(subject, key_bits)
    for subject in ("hardened, manifests that nobody signs", HARDENED):
        with weakened(subject, (manifest, "require_signed", lambda *_: None)):
            yield _unused(subject, key_bits)


def _any_order(shape: Shape, *, pays: bool) -> dict[str, str | None]:
    """As if nothing ordered rewards before openings."""
    after = _ORDER(shape, pays=True)
    return after if pays else after | _ORDER(shape, pays=False)


def _after(subject: str, key_bits: int) -> Finding:
    """A task without budget: the average is read, and CSP is asked whether a count is below a number of SP's choice."""
    parties = small_parties(key_bits)
    parties.play(1, parties.encrypt(small_updates()), readers=None)
    told, records = dict[int, bool | None](), parties.csp.records
    for bound in (SMALL_PEOPLE[_VICTIM] + shift for shift in (-2, -1, 0, 1, 2, 3)):
        parties.csp.records = records.copy()
        told[bound] = is_below(parties, 1, bound)
    right = sum(said == (SMALL_PEOPLE[_VICTIM] < bound) for bound, said in told.items())
    wrong = 1 - max(right, len(told) / 2) / len(told)
    return _AFTER.score(subject, wrong, 0.5, 0.0, f"{right} of {len(told)} signs", "everyone has read the average")


def _unused(subject: str, key_bits: int) -> Finding:
    """A task that pays, cancelled after round 1: its uploads are asked about in all the others, by halving."""
    parties = small_parties(key_bits, rounds=_ROUNDS)
    uploads = parties.encrypt(small_updates())
    parties.play(1, uploads, payment=PAYMENT)
    low, high, asked = 0, _MOST, 0
    for number in range(2, _ROUNDS + 1):
        try:
            parties.csp.answer(replace(signed_manifest(1, uploads), round_number=number).to_bytes())
        except BadSignature:
            continue
        middle, asked = (low + high + 1) // 2, asked + 1
        low, high = (low, middle - 1) if is_below(parties, number, middle) else (middle, high)
    guess, truth = low if low == high else None, SMALL_PEOPLE[_VICTIM]
    recovered = f"{low} to {high} where {truth} is true, by {asked} questions"
    return _UNUSED.score(subject, guess, _MOST // 2, truth, recovered, f"{_ROUNDS - 1} rounds never come: no price")


def is_below(parties: HardenedParties, number: int, bound: int) -> bool | None:
    """Whether the victim's count is, as CSP's order has it tell; None if it refuses to be asked."""
    party, rows = parties.sp.party, parties.sp.codec.budget.buckets * len(SMALL_PEOPLE)
    chosen = party.add_plain(parties.sp.averaged(_VICTIM).part(-1), [-bound])
    lanes = party.rerandomise(CipherVector.concat([chosen, party.encrypt([1] * (rows - 1))]))
    try:
        parties.csp.answer(LanesRequest(number, 0, lanes, party.partial_decrypt(lanes)).to_bytes())
    except RoundEnded:
        return True
    except OutOfTurn:
        return None
    return False
