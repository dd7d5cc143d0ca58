"""Attacks with keys: what each holds of them, alone or pooled, on the very bytes that it sees.

Attack 4: a participant that was dealt eps - 2, as Fig. 6b does to save time, factors N. eps is a multiple of lambda and 1
modulo N: whoever holds eps less a small number tries the small numbers. This dealing exists here alone.

Attacks 5 and 6: who reads another participant's upload or reward: SP with one fake participant, a participant that overhears,
a requester that overhears. Each tries every key, and every pair of keys.
"""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import combinations_with_replacement

import gmpy2
import numpy as np
from gmpy2 import mpz

from crowdfl.crypto.blocks import from_ints, to_ints
from crowdfl.crypto.paillier import pctd
from crowdfl.crypto.paillier.pctd import KeyShare
from crowdfl.crypto.paillier.vector import CipherVector, combine, signed_values
from crowdfl.errors import CrowdFLError, SealBroken
from crowdfl.protocols.claims import RewardEnvelope, reward_context
from crowdfl.protocols.hardened.shape import reward_widths
from crowdfl.protocols.messages import Limits, Message
from crowdfl.protocols.paper.profile import PaperReward
from crowdfl_lab.audit.finding import (
    HARDENED,
    PAPER,
    REWARD_OFF,
    Attack,
    Finding,
    Floats,
    Measure,
    difference,
    found_in,
    relative,
    rms,
)
from crowdfl_lab.audit.recorded_round import BUDGET, RecordedRound
from crowdfl_lab.uploads import ciphertexts_in

_BASES = 300  # every other prime below splits N
_SMALL = 16  # the other share, tried up to here
_SMALL_SHARE = 2
_VICTIM, _OVERHEARER = "p1", "p2"

_FACTORED = Measure(difference, "0: N is factored; blind: 1")
_SHARE_OFF = Measure(relative, "relative error; blind: 1")
_WEIGHT_OFF = Measure(rms, "root mean square error of a weight; blind: the published average")
_OTHER_SHARE = Attack("other share", "4", "the phones' share, from SP's own", ("SP",), _SHARE_OFF)
_POOLED = "a participant's model, by SP with one fake participant"
_UPLOAD = Attack("upload", "5", _POOLED, ("SP", "participant"), _WEIGHT_OFF)
_OVERHEARD = "a participant's model, by a requester that overhears"
_OVERHEARD_UPLOAD = Attack("overheard upload", "6", _OVERHEARD, ("requester",), _WEIGHT_OFF)
_REWARD = "another's reward, by a participant that overhears"
_OVERHEARD_REWARD = Attack("overheard reward", "6", _REWARD, ("participant",), REWARD_OFF)


def attack_small_key(prime_bits: int) -> Iterator[Finding]:
    """On the small dealing, on the printed one and on that of `hardened`, where phones hold nothing and SP stands in."""
    private = pctd.keygen(prime_bits, insecure_test_key=prime_bits < pctd.SECURE_PRIME_BITS).private
    small = KeyShare(private.public, private.lambda_ * private.u - _SMALL_SHARE)
    printed, hardened = private.split_as_printed()[1], private.split()[0]
    note = f"phones hold no share; tried on SP's. As dealt by {PAPER}: {_factored(printed)}"
    for subject, attacker, share, how in (
        (f"{PAPER}, lambda_sp = 2", "participant", small, "the phone holds eps - 2"),
        (HARDENED, "SP", hardened, note),
    ):
        title, recovered = "the private key, from a share that leaves a small one", _factored(share)
        attack = Attack("small key", "4", title, (attacker,), _FACTORED)
        yield attack.score(subject, 0.0 if recovered == "p and q" else 1.0, 1.0, 0.0, recovered, how)
    # The other way round: lambda_p = 2 leaves SP eps - 2, and a share below N is known from the other modulo N.
    guess = int((1 - small.exponent) % small.public.n)
    recovered = f"lambda_p = {guess}" if guess == _SMALL_SHARE else "nothing"
    note = "eps = 1 modulo N: a share below N is 1 - the other one modulo N"
    yield _OTHER_SHARE.score(f"{PAPER}, lambda_p = 2", guess, 0, _SMALL_SHARE, recovered, note)


def _factored(share: KeyShare) -> str:
    """p and q come out if the share is a multiple of lambda less a small number."""
    n = share.public.n
    found = (factor_with(n, share.exponent + small) for small in range(-_SMALL, _SMALL + 1))
    return "p and q" if any(factors and factors[0] * factors[1] == n for factors in found) else "no factor"


def factor_with(n: mpz, multiple: int) -> tuple[int, int] | None:
    """The factors of N from a multiple of lambda(N), or None if it is none: square roots of one give them away."""
    odd, twos = mpz(multiple), 0
    if odd <= 0:
        return None
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    for base in range(2, _BASES):
        power = gmpy2.powmod(base, odd, n)
        for _ in range(twos):
            square = power * power % n
            if square == 1 and power not in (1, n - 1):
                p = gmpy2.gcd(power - 1, n)
                return int(p), int(n // p)
            power = square
        if power != 1:
            return None
    return None


def attack_upload(recorded: RecordedRound) -> Finding:
    """Attack 5: SP pools its shares with what one enrolled phone of its own was given."""
    held = [*recorded.sp_shares, *([recorded.phone_share] if recorded.phone_share else [])]
    pooled = [a.exponent + b.exponent for a, b in combinations_with_replacement(held, 2)]
    return _score_upload(_UPLOAD, recorded, [share.exponent for share in held] + pooled, "shares pooled")


def attack_overheard_upload(recorded: RecordedRound) -> Finding:
    """Attack 6: the requester, with whatever key it owns, on an upload it overheard."""
    key = recorded.requester_key
    exponents = [] if key is None else [key.lambda_ * key.u]
    note = "the requester owns sk" if key else "the requester owns an audience key, which decrypts nothing"
    return _score_upload(_OVERHEARD_UPLOAD, recorded, exponents, note)


def _score_upload(attack: Attack[Floats], recorded: RecordedRound, exponents: Iterable[mpz], note: str) -> Finding:
    """The blind guess is the published average, which every participant reads anyway."""
    truth = recorded.weights[_VICTIM]
    upload = CipherVector.from_bytes(ciphertexts_in(recorded.uploads[_VICTIM]), recorded.public, max_count=1 << 20)
    readings = (_read(recorded, upload, exponent) for exponent in exponents)
    guess = next((read for read in readings if read is not None), None)
    within = 10.0**-recorded.settings.decimals
    recovered = "nothing decrypts" if guess is None else found_in(guess, truth, "weights to 6 decimals", 1.49 * within)
    return attack.score(recorded.profile, guess, recorded.average, truth, recovered, note)


def _read(recorded: RecordedRound, upload: CipherVector, exponent: mpz) -> Floats | None:
    """delta * w over delta, in either layout, if the exponent is a decryption key."""
    public, last = recorded.public, len(upload) - 1
    samples = _decrypt(upload.part(last), exponent)
    values = _decrypt(upload.part(0, last), exponent) if samples and samples[0] else None
    if samples is None or values is None:
        return None
    if recorded.codec is None:
        signed = [public.signed(v) for v in values[: recorded.parameters]]
        return np.array(signed, dtype=np.float64) / float(samples[0])
    with suppress(CrowdFLError):  # not a packing
        return recorded.codec.average(from_ints(values, public.plaintext_bytes), public.signed(samples[0]))
    return None


def _decrypt(c: CipherVector, exponent: mpz) -> list[mpz] | None:
    """L(c^exponent) of every entry, or None where the exponent is not a decryption key."""
    n, n_squared = c.public.n, c.public.n_squared
    divided = [gmpy2.f_divmod(gmpy2.powmod(value, exponent, n_squared) - 1, n) for value in to_ints(c.block)]
    return None if any(remainder for _, remainder in divided) else [quotient for quotient, _ in divided]


def attack_overheard_reward(recorded: RecordedRound) -> Finding:
    truth, blind = recorded.rewards[_VICTIM], BUDGET / len(recorded.rewards)
    read = _read_reward(recorded, recorded.envelopes[_VICTIM])
    recovered = "nothing opened" if read is None else f"{read:.6f} where {truth:.6f} is true"
    sealed = "sealed to its owner's key; all keys at hand tried"
    note = "lambda_p is the same on all phones" if recorded.phone_share else sealed
    return _OVERHEARD_REWARD.score(recorded.profile, read, blind, truth, recovered, note)


def _read_reward(recorded: RecordedRound, envelope: bytes) -> float | None:
    """By PDec and TDec with the phone's share, or by opening the seal with any key the phone holds."""
    limits = Limits(recorded.public, 1)
    if Message.kind_of(envelope) != PaperReward.kind:
        return _unseal(recorded, RewardEnvelope.from_bytes(envelope, limits))
    if recorded.phone_share is None:
        return None
    message = PaperReward.from_bytes(envelope, limits)
    opened = combine(message.mu_1, message.mu.partial_decrypt(recorded.phone_share))
    return signed_values(opened, recorded.public)[0] / 10.0**recorded.settings.decimals


def _unseal(recorded: RecordedRound, envelope: RewardEnvelope) -> float | None:
    public = recorded.public
    readers = [recorded.phone_reader.open] if recorded.phone_reader else []
    for open_with in (*readers, *(audience.open for audience in recorded.audiences)):
        for who in (_VICTIM, _OVERHEARER):
            with suppress(SealBroken):
                sealed = open_with(envelope.sealed, reward_context(recorded.context, who))
                masked = int.from_bytes(sealed[: public.plaintext_bytes], "big")  # CSP's signature follows
                fraction = reward_widths(recorded.settings, recorded.parameters).fraction
                return float(((masked - envelope.mask) % int(public.n)) >> fraction) / 1e6
    return None
