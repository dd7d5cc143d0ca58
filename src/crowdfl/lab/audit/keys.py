"""Experiments with keys and seeds that were dealt or used wrongly on purpose.

Attack 4: a participant that was dealt eps - 2, as Fig. 6b does to save time, factors N. eps is a multiple of lambda and 1
modulo N: whoever holds eps less a small number tries the small numbers. This dealing exists here alone.

Attack 7 on `hardened`: why a mask seed never serves two sums. If it did, CSP would see X + R and X + late + R: their difference
is the late participant's update, in the clear. Done here by forging the binding of the seed to its sum.
"""

from typing import cast

import numpy as np

from crowdfl.crypto import pctd
from crowdfl.crypto.blocks import from_ints, to_ints
from crowdfl.crypto.pctd import KeyShare
from crowdfl.errors import SeedReused
from crowdfl.lab.audit.arithmetic import factor_with
from crowdfl.lab.audit.finding import HARDENED, PAPER, Finding, conclude, rms
from crowdfl.lab.audit.scene import deal
from crowdfl.lab.parties import LocalParties
from crowdfl.protocols.hardened.opening import PARTICIPANTS, MaskSeed, OpeningSp, digest
from crowdfl.protocols.hardened.profile import HardenedSp

__all__ = ["attack_reused_seed", "attack_small_key", "factors_from_share"]

_SMALL = 16  # the other share, tried up to here
_SMALL_SHARE = 2
_SAMPLES = (20, 31, 44, 83)


def attack_small_key(prime_bits: int) -> list[Finding]:
    """On the small dealing, on the printed one and on that of `hardened`, where phones hold nothing and SP stands in."""
    keys = pctd.keygen(prime_bits, insecure_test_key=prime_bits < pctd.SECURE_PRIME_BITS)
    private, public = keys.private, keys.public
    small = KeyShare(public, private.lambda_ * private.u - _SMALL_SHARE)
    _, printed = private.split_as_printed()
    hardened, _ = private.split()
    note = f"phones hold no share; tried on SP's. As dealt by {PAPER}: {_text(printed)}"
    return [
        _factored(f"{PAPER}, lambda_sp = 2", "participant", small, "the phone holds eps - 2"),
        _factored(HARDENED, "SP", hardened, note),
        _whole_share(small),
    ]


def factors_from_share(share: KeyShare) -> tuple[int, int] | None:
    """p and q, if the share is a multiple of lambda less a small number."""
    nearby = (share.exponent + small for small in range(-_SMALL, _SMALL + 1))
    found = (factor_with(share.public.n, multiple) for multiple in nearby)
    return next((factors for factors in found if factors is not None), None)


def _factored(subject: str, attacker: str, share: KeyShare, note: str) -> Finding:
    place = ("small key", "4", "the private key, from a share that leaves a small one")
    found = factors_from_share(share)
    error = 0.0 if found and found[0] * found[1] == share.public.n else 1.0
    return conclude(place, [attacker], subject, (error, 1.0), "0: N is factored; blind: 1", _text(share), note)


def _whole_share(share: KeyShare) -> Finding:
    """The other way round: lambda_p = 2 leaves SP eps - 2, and a share below N is known from the other modulo N."""
    guess = (1 - share.exponent) % share.public.n
    return conclude(
        ("other share", "4", "the phones' share, from SP's own"),
        ["SP"],
        f"{PAPER}, lambda_p = 2",
        (abs(int(guess) - _SMALL_SHARE) / _SMALL_SHARE, 1.0),
        "relative error; blind: 1",
        f"lambda_p = {guess}" if guess == _SMALL_SHARE else "nothing",
        "eps = 1 modulo N: a share below N is 1 - the other one modulo N",
    )


def _text(share: KeyShare) -> str:
    return "p and q" if factors_from_share(share) else "no factor"


def attack_reused_seed(key_bits: int, parameters: int = 12) -> Finding:
    """CSP subtracts what it opened twice under one seed."""
    rng = np.random.default_rng(3)
    models = [np.round(rng.uniform(-0.45, 0.45, parameters), 6) for _ in _SAMPLES]
    parties = deal(parameters, key_bits=key_bits, max_participants=5, lanes=0)
    sp, public = cast(HardenedSp, parties.sp), parties.dealer.task.public
    refused = _open_twice(
        parties, sp, parties.encrypt({f"p{i}": (w, n) for i, (w, n) in enumerate(zip(models, _SAMPLES, strict=True))})
    )
    before, after = (to_ints(block) for block in parties.csp.party.view.of("opened"))
    late = [(b - a) % public.n for a, b in zip(before, after, strict=True)]
    read = sp.codec.average(from_ints(late[:-1], public.plaintext_bytes), int(late[-1]))
    return conclude(
        ("reused seed", "7", "a late participant's model, by CSP, if a seed served two sums"),
        ["CSP"],
        "hardened, a seed reused on purpose",
        (rms(read - models[-1]), rms(models[-1])),
        "root mean square error of a weight; blind: all zeros",
        f"the whole update and its {int(late[-1])} samples",
        f"as built the second request is refused before it is made: {refused}",
    )


def _open_twice(parties: LocalParties, sp: HardenedSp, uploads: dict[str, bytes]) -> str:
    """The sum without the last upload and with it, by one seed; how SP's own code refuses."""
    opening, context, refused = OpeningSp(sp.party), b"round 1", ""
    *early, late = uploads
    round_ = parties.open(1)
    round_.collect({who: uploads[who] for who in early})
    state = MaskSeed.fresh_for(sp.sums())
    for request in opening.requests(state, sp.sums(), context, PARTICIPANTS):
        parties.csp.answer(request)
    round_.collect({late: uploads[late]})
    try:
        list(opening.requests(state, sp.sums(), context, PARTICIPANTS))
    except SeedReused as error:
        refused = type(error).__name__
    forged = MaskSeed(state.seed, digest(sp.sums()))
    for request in opening.requests(forged, sp.sums(), context, PARTICIPANTS):
        parties.csp.answer(request)
    return refused
