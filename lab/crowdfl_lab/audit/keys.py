"""Attacks with keys: what each holds of them, alone or pooled, on the very bytes that it sees.

Attack 4: a participant that was dealt eps - 2, as Fig. 6b does to save time, factors N. eps is a multiple of lambda and 1
modulo N: whoever holds eps less a small number tries the small numbers. This dealing exists here alone.

Attacks 5 and 6: who reads another participant's upload or reward: SP with one fake participant, a participant that overhears,
a requester that overhears. Each tries every key, and every pair of keys.
"""

from collections.abc import Iterable
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
from crowdfl_lab.audit.arithmetic import factor_with
from crowdfl_lab.audit.finding import HARDENED, PAPER, Attack, Finding, Floats, difference, relative, rms
from crowdfl_lab.audit.recorded_round import BUDGET, Scene

_SMALL = 16  # the other share, tried up to here
_SMALL_SHARE = 2
_VICTIM = "p1"
_OVERHEARER = "p2"

_POOLED = "a participant's model, by SP with one fake participant"
_OVERHEARD = "a participant's model, by a requester that overhears"
_REWARD = "another's reward, by a participant that overhears"
_OFF_WEIGHT = "root mean square error of a weight; blind: the published average"
_OFF_REWARD = "relative error; blind: the budget in equal parts"
_OTHER_SHARE = Attack(
    "other share", "4", "the phones' share, from SP's own", ("SP",), relative, "relative error; blind: 1"
)
_UPLOAD = Attack("upload", "5", _POOLED, ("SP", "participant"), rms, _OFF_WEIGHT)
_OVERHEARD_UPLOAD = Attack("overheard upload", "6", _OVERHEARD, ("requester",), rms, _OFF_WEIGHT)
_OVERHEARD_REWARD = Attack("overheard reward", "6", _REWARD, ("participant",), relative, _OFF_REWARD)


def attack_small_key(prime_bits: int) -> list[Finding]:
    """On the small dealing, on the printed one and on that of `hardened`, where phones hold nothing and SP stands in."""
    private = pctd.keygen(prime_bits, insecure_test_key=prime_bits < pctd.SECURE_PRIME_BITS).private
    small = KeyShare(private.public, private.lambda_ * private.u - _SMALL_SHARE)
    printed, hardened = private.split_as_printed()[1], private.split()[0]
    note = f"phones hold no share; tried on SP's. As dealt by {PAPER}: {_factored(printed)}"
    return [
        _factors(f"{PAPER}, lambda_sp = 2", "participant", small, "the phone holds eps - 2"),
        _factors(HARDENED, "SP", hardened, note),
        _whole_share(small),
    ]


def _factors(subject: str, attacker: str, share: KeyShare, note: str) -> Finding:
    title, measure = "the private key, from a share that leaves a small one", "0: N is factored; blind: 1"
    recovered = _factored(share)
    attack = Attack("small key", "4", title, (attacker,), difference, measure)
    return attack.score(subject, 0.0 if recovered == "p and q" else 1.0, 1.0, 0.0, recovered, note)


def _factored(share: KeyShare) -> str:
    """p and q come out if the share is a multiple of lambda less a small number."""
    n = share.public.n
    found = (factor_with(n, share.exponent + small) for small in range(-_SMALL, _SMALL + 1))
    return "p and q" if any(factors and factors[0] * factors[1] == n for factors in found) else "no factor"


def _whole_share(share: KeyShare) -> Finding:
    """The other way round: lambda_p = 2 leaves SP eps - 2, and a share below N is known from the other modulo N."""
    guess = int((1 - share.exponent) % share.public.n)
    recovered = f"lambda_p = {guess}" if guess == _SMALL_SHARE else "nothing"
    note = "eps = 1 modulo N: a share below N is 1 - the other one modulo N"
    return _OTHER_SHARE.score(f"{PAPER}, lambda_p = 2", guess, 0, _SMALL_SHARE, recovered, note)


def attack_upload(scene: Scene) -> Finding:
    """Attack 5: SP pools its shares with what one enrolled phone of its own was given."""
    held = [*scene.sp_shares, *([scene.phone_share] if scene.phone_share else [])]
    pooled = [a.exponent + b.exponent for a, b in combinations_with_replacement(held, 2)]
    return _score_upload(_UPLOAD, scene, [share.exponent for share in held] + pooled, "shares pooled")


def attack_overheard_upload(scene: Scene) -> Finding:
    """Attack 6: the requester, with whatever key it owns, on an upload it overheard."""
    key = scene.requester_key
    exponents = [] if key is None else [key.lambda_ * key.u]
    note = "the requester owns sk" if key else "the requester owns an audience key, which decrypts nothing"
    return _score_upload(_OVERHEARD_UPLOAD, scene, exponents, note)


def _score_upload(attack: Attack[Floats], scene: Scene, exponents: Iterable[mpz], note: str) -> Finding:
    """The blind guess is the published average, which every participant reads anyway."""
    truth = scene.weights[_VICTIM]
    upload = CipherVector.from_bytes(scene.uploads[_VICTIM], scene.public, max_count=1 << 20)
    readings = (_read(scene, upload, exponent) for exponent in exponents)
    guess, recovered = next((read for read in readings if read is not None), None), "nothing decrypts"
    if guess is not None:
        exact = int(np.count_nonzero(np.abs(guess - truth) < 1.5 * 10.0**-scene.settings.decimals))
        recovered = f"{exact} of {len(truth)} weights to 6 decimals"
    return attack.score(scene.profile, guess, scene.average, truth, recovered, note)


def _read(scene: Scene, upload: CipherVector, exponent: mpz) -> Floats | None:
    """delta * w over delta, in either layout, if the exponent is a decryption key."""
    public, last = scene.public, len(upload) - 1
    samples = _decrypt(upload.part(last), exponent)
    values = _decrypt(upload.part(0, last), exponent) if samples and samples[0] else None
    if samples is None or values is None:
        return None
    if scene.codec is None:
        return np.array([public.signed(v) for v in values[: scene.parameters]], dtype=np.float64) / float(samples[0])
    with suppress(CrowdFLError):  # not a packing
        return scene.codec.average(from_ints(values, public.plaintext_bytes), public.signed(samples[0]))
    return None


def _decrypt(c: CipherVector, exponent: mpz) -> list[mpz] | None:
    """L(c^exponent) of every entry, or None where the exponent is not a decryption key."""
    n, n_squared = c.public.n, c.public.n_squared
    divided = [gmpy2.f_divmod(gmpy2.powmod(value, exponent, n_squared) - 1, n) for value in to_ints(c.block)]
    return None if any(remainder for _, remainder in divided) else [quotient for quotient, _ in divided]


def attack_overheard_reward(scene: Scene) -> Finding:
    truth, blind = scene.rewards[_VICTIM], BUDGET / len(scene.rewards)
    read = _read_reward(scene, scene.envelopes[_VICTIM])
    recovered = "nothing opened" if read is None else f"{read:.6f} where {truth:.6f} is true"
    sealed = "sealed to its owner's key; all keys at hand tried"
    note = "lambda_p is the same on all phones" if scene.phone_share else sealed
    return _OVERHEARD_REWARD.score(scene.profile, read, blind, truth, recovered, note)


def _read_reward(scene: Scene, envelope: bytes) -> float | None:
    """By PDec and TDec with the phone's share, or by opening the seal with any key the phone holds."""
    limits = Limits(scene.public, 1)
    if Message.kind_of(envelope) != PaperReward.kind:
        return _unseal(scene, RewardEnvelope.from_bytes(envelope, limits))
    if scene.phone_share is None:
        return None
    message = PaperReward.from_bytes(envelope, limits)
    opened = combine(message.mu_1, message.mu.partial_decrypt(scene.phone_share))
    return signed_values(opened, scene.public)[0] / 10.0**scene.settings.decimals


def _unseal(scene: Scene, envelope: RewardEnvelope) -> float | None:
    readers = [scene.phone_reader.open] if scene.phone_reader else []
    for open_with in (*readers, *(audience.open for audience in scene.audiences)):
        for who in (_VICTIM, _OVERHEARER):
            try:
                sealed = open_with(envelope.sealed, reward_context(scene.context, who))
            except SealBroken:
                continue
            masked = int.from_bytes(sealed[: scene.public.plaintext_bytes], "big")  # CSP's signature follows
            fraction = reward_widths(scene.settings, scene.parameters).fraction
            return float(((masked - envelope.mask) % int(scene.public.n)) >> fraction) / 1e6
    return None
