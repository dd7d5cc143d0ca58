"""Beyond section 7: a hidden total, by CSP together with one reader.

The reader knows the seed of the published opening and the average; CSP knows [[Q]], X + R modulo N and its own replies. If the
seed that readers are given also blinds SP's ciphertexts, the two can take the blinding off and are left with [[Q]]^R: a power
whose exponent is known but for X. A row with few slots in use is then found by baby steps and giant steps, and X over the
average is the total.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import isqrt

import gmpy2
import numpy as np
from gmpy2 import mpz

from crowdfl.crypto.blocks import to_ints
from crowdfl.crypto.pctd import PublicKey
from crowdfl.crypto.randomizers import FreshRandomizers
from crowdfl.crypto.randomness import Coins
from crowdfl.lab.audit.finding import HARDENED, Finding, conclude
from crowdfl.local import LocalFederation, Update
from crowdfl.protocols.hardened.opening import OpenRequest, Publication
from crowdfl.protocols.hardened.prifedavg import ScaleReply, ScaleRequest
from crowdfl.protocols.messages import Limits, Message

__all__ = ["Transcript", "attack_hidden_total", "record", "recover_sum"]

_SAMPLES = (49, 31, 20, 83)
_BOUND = 500 * 10**6  # |X| of the one slot: 5 participants, 100 samples, weights up to 1


@dataclass(frozen=True)
class Transcript:
    """What CSP and a reader have between them."""

    public: PublicKey
    scale: ScaleRequest
    scaled: ScaleReply
    opening: OpenRequest
    publication: Publication
    masked_sum: mpz
    average: float


def attack_hidden_total(key_bits: int) -> Finding:
    """On a task with a single parameter: one slot in use."""
    seen = record(key_bits)
    found = recover_sum(seen)
    truth, most = sum(_SAMPLES), 500
    guess = most // 2 if found is None else round(found / (seen.average * 1e6))
    return conclude(
        ("hidden total", "new", "the hidden total, by CSP with one reader"),
        ["CSP", "participant"],
        HARDENED,
        (abs(guess - truth) / truth, abs(most // 2 - truth) / truth),
        "relative error; blind: half of the largest total",
        "the blinding does not come off" if found is None else f"{guess} samples where {truth} is true",
        "total = hidden, one parameter: a discrete logarithm of 30 bits if the published seed blinds",
    )


def record(key_bits: int) -> Transcript:
    """An honest round with the total hidden, CSP's messages kept."""
    fed = LocalFederation(
        key_bits=key_bits, insecure_test_key=key_bits < 2048, max_participants=5, clip=1.0, lanes=0, total="hidden"
    )
    fed._deal(1)
    kept: list[tuple[bytes, bytes]] = []
    object.__setattr__(fed.csp, "answer", _keeping(fed.csp.answer, kept))
    rng = np.random.default_rng(11)
    result = fed.round({f"p{i}": Update([rng.uniform(0.2, 0.8, 1)], n) for i, n in enumerate(_SAMPLES)})
    limits = Limits(fed.sp.party.public, 16)
    by_kind = {Message.kind_of(request): (request, reply) for request, reply in kept}
    scale, reply = by_kind[ScaleRequest.kind]
    return Transcript(
        fed.sp.party.public,
        ScaleRequest.from_bytes(scale, limits),
        ScaleReply.from_bytes(reply, limits),
        OpenRequest.from_bytes(by_kind[OpenRequest.kind][0], limits),
        Publication.from_bytes(fed.sp.publication(), limits),
        to_ints(fed.csp.party.view.of("opened")[0])[0],
        float(result.average[0][0]),
    )


def recover_sum(seen: Transcript) -> int | None:
    """X, if sums / scaled = [[Q]]^-R modulo N with R = (X + R) - X."""
    n = seen.public.n
    blinds = FreshRandomizers(seen.public, entropy=Coins(seen.publication.seed).child("blind 0").take)
    blind = to_ints(blinds.take(1))[0]
    factor, scaled, opened = (
        to_ints(v.block)[0] % n for v in (seen.scale.factor, seen.scaled.scaled, seen.opening.masked)
    )
    power = opened * gmpy2.invert(blind * scaled, n) * gmpy2.powmod(factor, seen.masked_sum, n) % n
    return _logarithm(power, factor, n)


def _logarithm(power: mpz, base: mpz, n: mpz) -> int | None:
    """x in [-_BOUND, _BOUND] with base^x = power modulo n: a table of small steps, met by large ones."""
    steps = isqrt(2 * _BOUND) + 1
    small: dict[mpz, int] = {}
    value = mpz(1)
    for step in range(steps):
        small[value] = step
        value = value * base % n
    back = gmpy2.invert(value, n)
    value = power * gmpy2.powmod(base, _BOUND, n) % n
    for stride in range(steps + 1):
        if value in small:
            return stride * steps + small[value] - _BOUND
        value = value * back % n
    return None


def _keeping(answer: Callable[[bytes], bytes], kept: list[tuple[bytes, bytes]]) -> Callable[[bytes], bytes]:
    def keep(request: bytes) -> bytes:
        reply = answer(request)
        kept.append((request, reply))
        return reply

    return keep
