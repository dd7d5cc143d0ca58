"""Attack 7 on `hardened`: why a mask seed never serves two sums.

If it did, CSP would see X + R and X + late + R: their difference is the late participant's update, in the clear. Done here on
purpose, by forging the binding of the seed to its sum.
"""

import numpy as np

from crowdfl.crypto.blocks import from_ints, to_ints
from crowdfl.errors import SeedReused
from crowdfl.lab.audit.finding import Finding, conclude
from crowdfl.local import LocalFederation
from crowdfl.protocols.hardened.opening import PARTICIPANTS, MaskSeed, OpeningSp, digest
from crowdfl.protocols.hardened.profile import HardenedSp

__all__ = ["attack_reused_seed"]

_SAMPLES = (20, 31, 44, 83)


def attack_reused_seed(key_bits: int, parameters: int = 12) -> Finding:
    """CSP subtracts what it opened twice under one seed."""
    rng = np.random.default_rng(3)
    models = [np.round(rng.uniform(-0.45, 0.45, parameters), 6) for _ in _SAMPLES]
    fed = LocalFederation(key_bits=key_bits, insecure_test_key=key_bits < 2048, max_participants=5, lanes=0)
    fed._deal(parameters)
    uploads = [
        fed._participant(f"p{i}").encrypt_update(w, n) for i, (w, n) in enumerate(zip(models, _SAMPLES, strict=True))
    ]
    refused = _open_twice(fed, uploads)
    sp = fed.sp
    if not isinstance(sp, HardenedSp):
        raise TypeError("the experiment is on the profile hardened")
    before, after = (to_ints(block) for block in fed.csp.party.view.of("opened"))
    n = sp.party.public.n
    late = [(b - a) % n for a, b in zip(before, after, strict=True)]
    codec = sp.codec
    read = codec.average(from_ints(late[:-1], sp.party.public.plaintext_bytes), int(late[-1]))
    error = float(np.sqrt(np.mean((read - models[-1]) ** 2)))
    blind = float(np.sqrt(np.mean(models[-1] ** 2)))
    return conclude(
        ("reused seed", "7", "a late participant's model, by CSP, if a seed served two sums"),
        ["CSP"],
        "hardened, a seed reused on purpose",
        (error, blind),
        "root mean square error of a weight; blind: all zeros",
        f"the whole update and its {int(late[-1])} samples",
        f"as built the second request is refused before it is made: {refused}",
    )


def _open_twice(fed: LocalFederation, uploads: list[bytes]) -> str:
    sp, refused = fed.sp, ""
    if not isinstance(sp, HardenedSp):
        raise TypeError("the experiment is on the profile hardened")
    opening = OpeningSp(sp.party)
    for who, upload in enumerate(uploads[:-1]):
        sp.add(f"p{who}", upload)
    first = sp._products.result()
    state = MaskSeed.fresh_for(first)
    for request in opening.requests(state, first, b"round 1", PARTICIPANTS):
        fed.csp.answer(request)
    sp.add("late", uploads[-1])
    second = sp._products.result()
    try:
        list(opening.requests(state, second, b"round 1", PARTICIPANTS))
    except SeedReused as error:
        refused = type(error).__name__
    forged = MaskSeed(state.seed, digest(second))
    for request in opening.requests(forged, second, b"round 1", PARTICIPANTS):
        fed.csp.answer(request)
    return refused
