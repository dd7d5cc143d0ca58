"""Attacks 5 and 6: who reads another participant's upload or reward with the keys it holds, or with those of two together.

SP with one fake participant, a participant that overhears, a requester that overhears. Each tries every key, and every pair of
keys, on the very bytes.
"""

from collections.abc import Iterable, Sequence
from itertools import combinations_with_replacement

import gmpy2
import numpy as np
from gmpy2 import mpz

from crowdfl.crypto.blocks import from_ints, to_ints
from crowdfl.crypto.pctd import KeyShare
from crowdfl.crypto.vector import CipherVector, combine, signed_values
from crowdfl.errors import CrowdFLError, SealBroken
from crowdfl.lab.audit.finding import Finding, Floats, conclude, rms
from crowdfl.lab.audit.scene import Scene
from crowdfl.protocols.hardened.prirwd import RewardEnvelope, reward_context
from crowdfl.protocols.messages import Limits, Message
from crowdfl.protocols.paper.profile import PaperReward

__all__ = ["attack_overheard_reward", "attack_overheard_upload", "attack_upload"]

_VICTIM = "p1"
_OVERHEARER = "p2"


def attack_upload(scene: Scene) -> Finding:
    """Attack 5: SP pools its shares with what one enrolled phone of its own was given."""
    held = [*scene.sp_shares, *([scene.phone_share] if scene.phone_share else [])]
    exponents = [a.exponent + b.exponent for a, b in combinations_with_replacement(held, 2)]
    return _score_upload(
        scene,
        ("upload", "5", "a participant's model, by SP with one fake participant"),
        ["SP", "participant"],
        [share.exponent for share in held] + exponents,
        "shares pooled",
    )


def attack_overheard_upload(scene: Scene) -> Finding:
    """Attack 6: the requester, with whatever key it owns, on an upload it overheard."""
    key = scene.requester_key
    exponents = [] if key is None else [key.lambda_ * key.u]
    note = "the requester owns sk" if key else "the requester owns an audience key, which decrypts nothing"
    place = ("overheard upload", "6", "a participant's model, by a requester that overhears")
    return _score_upload(scene, place, ["requester"], exponents, note)


def attack_overheard_reward(scene: Scene) -> Finding:
    """Attack 6: a participant on the reward message of another."""
    truth = scene.rewards[_VICTIM]
    blind = scene.budget / len(scene.rewards)
    read = _read_reward(scene, scene.envelopes[_VICTIM])
    guess = blind if read is None else read
    return conclude(
        ("overheard reward", "6", "another's reward, by a participant that overhears"),
        ["participant"],
        scene.profile,
        (abs(guess - truth) / truth, abs(blind - truth) / truth),
        "relative error; blind: the budget in equal parts",
        "nothing opened" if read is None else f"{read:.6f} where {truth:.6f} is true",
        "lambda_p is the same on all phones"
        if scene.phone_share
        else "sealed to its owner's key; all keys at hand tried",
    )


def _score_upload(
    scene: Scene, place: tuple[str, str, str], attackers: Sequence[str], exponents: Iterable[mpz], how: str
) -> Finding:
    """The blind guess is the published average, which every participant reads anyway."""
    truth = scene.weights[_VICTIM]
    upload = CipherVector.from_bytes(scene.uploads[_VICTIM], scene.public, max_count=1 << 20)
    read = _read_upload(scene, upload, exponents)
    guess = scene.average if read is None else read
    exact = int(np.count_nonzero(np.abs(guess - truth) < 1.5 * 10.0**-scene.settings.decimals))
    return conclude(
        place,
        attackers,
        scene.profile,
        (rms(guess - truth), rms(scene.average - truth)),
        "root mean square error of a weight; blind: the published average",
        "nothing decrypts" if read is None else f"{exact} of {len(truth)} weights to 6 decimals",
        how,
    )


def _read_upload(scene: Scene, upload: CipherVector, exponents: Iterable[mpz]) -> Floats | None:
    for exponent in exponents:
        samples = _decrypt(upload.part(len(upload) - 1), exponent)
        if samples is None or not samples[0]:
            continue
        values = _decrypt(upload.part(0, len(upload) - 1), exponent)
        if values is not None:
            return _weights(scene, values, samples[0])
    return None


def _weights(scene: Scene, values: list[mpz], samples: mpz) -> Floats | None:
    """delta * w over delta, in either layout."""
    if scene.codec is None:
        signed = [scene.public.signed(v) for v in values[: scene.parameters]]
        return np.array(signed, dtype=np.float64) / float(samples)
    try:
        return scene.codec.average(from_ints(values, scene.public.plaintext_bytes), scene.public.signed(samples))
    except CrowdFLError:  # not a packing
        return None


def _decrypt(c: CipherVector, exponent: mpz) -> list[mpz] | None:
    """L(c^exponent) of every entry, or None where the exponent is not a decryption key."""
    n, n_squared = c.public.n, c.public.n_squared
    residues = []
    for value in to_ints(c.block):
        quotient, remainder = gmpy2.f_divmod(gmpy2.powmod(value, exponent, n_squared) - 1, n)
        if remainder:
            return None
        residues.append(quotient)
    return residues


def _read_reward(scene: Scene, envelope: bytes) -> float | None:
    """By PDec and TDec with the phone's share, or by opening the seal with any key the phone holds."""
    limits = Limits(scene.public, 1)
    if Message.kind_of(envelope) == PaperReward.kind:
        message = PaperReward.from_bytes(envelope, limits)
        return _finish(scene, message, scene.phone_share)
    return _unseal(scene, RewardEnvelope.from_bytes(envelope, limits))


def _finish(scene: Scene, message: PaperReward, share: KeyShare | None) -> float | None:
    if share is None:
        return None
    opened = combine(message.mu_1, message.mu.partial_decrypt(share))
    return signed_values(opened, scene.public)[0] / 10.0**scene.settings.decimals


def _unseal(scene: Scene, envelope: RewardEnvelope) -> float | None:
    """The mask is there for the taking; what it masks is sealed."""
    readers = [scene.phone_reader.open] if scene.phone_reader else []
    for open_with in (*readers, *(audience.open for audience in scene.audiences)):
        for who in (_VICTIM, _OVERHEARER):
            try:
                sealed = open_with(envelope.sealed, reward_context(scene.context, who))
            except SealBroken:
                continue
            return float((int.from_bytes(sealed, "big") - envelope.mask) % int(scene.public.n)) / 1e6
    return None
