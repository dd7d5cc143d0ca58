"""Attack 9: SMUL's printed masks of 80 bits on operands of 78.

x' = x + r with r below 2^80 confines x to (x' - 2^80, x']. PriRwd masks the same Omega for every participant in every round,
afresh: the intervals intersect in a narrow one. In `hardened` an operand is masked once, and by sigma bits more.
"""

from collections.abc import Sequence

from crowdfl.crypto import pctd
from crowdfl.crypto.randomness import Coins
from crowdfl.lab.audit.finding import HARDENED, PRINTED, Finding, conclude
from crowdfl.lab.audit.scene import Scene
from crowdfl.protocols.party import Party
from crowdfl.protocols.smul import PaperSmulCsp, PaperSmulSp

__all__ = ["attack_printed_masks", "attack_scene_masks", "narrow"]

_PRINTED = 80
_OMEGA = 0x2C5A_1F37_88D2_04B9_6E31  # 78 bits, as Omega has at scale 10^2L for a few thousand parameters
_TIMES = 36 * 50  # participants and rounds: what is left is off by 0.2% on average
_PLACE = ("short masks", "9", "an operand of SMUL, by CSP")
_MEASURE = "relative error; blind: the middle of the operand's range"


def attack_printed_masks(prime_bits: int = 128) -> Finding:
    """Alg. 2 as printed, Omega masked for every participant in every round."""
    keys = pctd.keygen(prime_bits, insecure_test_key=True)
    first, second = keys.private.split_as_printed()
    sp, csp = Party("SP", keys.public, first), Party("CSP", keys.public, second)
    omega = sp.encrypt([_OMEGA] * _TIMES)
    _, request = PaperSmulSp(sp, mask_bits=_PRINTED).begin(omega, sp.encrypt([1] * _TIMES), Coins.fresh())
    PaperSmulCsp(csp, max_count=_TIMES).answer(request)
    guess = narrow([int(v) for v in csp.view.of("SMUL x'")[0]], 0, _PRINTED, 78)
    return conclude(
        _PLACE,
        ["CSP"],
        PRINTED,
        (abs(guess - _OMEGA) / _OMEGA, abs((1 << 77) - _OMEGA) / _OMEGA),
        _MEASURE,
        f"Omega = {guess:.3e} where {_OMEGA:.3e} is true",
        f"{_TIMES} intervals of 2^{_PRINTED} intersected",
    )


def attack_scene_masks(scene: Scene) -> Finding:
    """The same on what CSP opened in a run of `hardened`: the total, the first operand of the exchange."""
    widths = [int(v) for v in scene.operand_widths]
    opened = [int(v) for v in scene.csp.of("SMUL x'")[0]]
    guess = narrow(opened[:1], 1 << widths[0], widths[0] + scene.slack, widths[0])
    middle = 1 << (widths[0] - 1)
    truth = scene.total
    return conclude(
        _PLACE,
        ["CSP"],
        HARDENED,
        (abs(guess - truth) / truth, abs(middle - truth) / truth),
        _MEASURE,
        f"Y = {guess} where {truth} is true",
        f"one interval of 2^{widths[0] + scene.slack} about an operand of {widths[0]} bits",
    )


def narrow(opened: Sequence[int], lowest: int, mask_bits: int, width: int) -> int:
    """The middle of what is left of [0, 2^width) when every x' - mask must hold, masks in [lowest, lowest + 2^mask_bits)."""
    low = max(0, *(v - lowest - (1 << mask_bits) + 1 for v in opened))
    high = min((1 << width) - 1, *(v - lowest for v in opened))
    return (low + high) // 2
