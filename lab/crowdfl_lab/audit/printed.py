"""What the paper's protocols print wrong, shown by running it: items 1 and 11."""

from collections.abc import Iterator

import numpy as np
from gmpy2 import mpz

from crowdfl.crypto.coins import Coins
from crowdfl.protocols.common.sdiv import PaperSdivCsp, PaperSdivSp
from crowdfl.protocols.exchange import ask_directly, run_exchange
from crowdfl_lab.audit.finding import PRINTED, Attack, Finding, Measure, difference
from crowdfl_lab.division import Pair

_SCALE = 10**6
_CORRECTED = Measure(difference, "error of the corrected form; blind: error as printed")
_Shown = tuple[float, float, str]  # the error of the corrected form, that of the printed one, and both in words


def demonstrate() -> Iterator[Finding]:
    """What the paper prints wrong in SDIV. "Broken": the printed form is wrong, the corrected one right."""
    for name, section, title, note, (corrected, printed, text) in (
        ("Y = [[x]]^r", "1", "Alg. 1 line 1a", "Y must be [[y]]^r", _printed_divisor()),
        ("factor 10^L", "11", "SDIV's floor", "the proof forgets the factor 10^L", _ignored_scale()),
        ("kappa = 32", "11", "SDIV in Alg. 4", "kappa must cover pi * d and delta * Omega", _short_kappa()),
    ):
        attack = Attack(name, section, title, (), _CORRECTED)
        yield attack.score(PRINTED, corrected, printed, 0.0, text, note)


def _printed_divisor() -> _Shown:
    x, y, r, alpha, e = 355, 113, 1 << 200, 12345, 67
    masked = r * x + y * (r * alpha + e)
    right, wrong = ((masked * _SCALE // divisor - alpha * _SCALE) / _SCALE for divisor in (r * y, r * x))
    return abs(right - x / y), abs(wrong - x / y), f"355/113 = {right}; with Y = [[x]]^r: {wrong}"


def _ignored_scale() -> _Shown:
    """r from the bottom of the printed range, 2^(kappa+1): the remainder times 10^L need not stay below one."""
    rng = np.random.default_rng(1)
    kappa = 32
    wrong = [0, 0]
    trials = 500
    for _ in range(trials):
        x, y, e = (int(v) for v in rng.integers(1, 1 << kappa, 3))
        for form, r in enumerate(((_SCALE << (2 * kappa)) + 1, (1 << (kappa + 1)) + 1)):
            quotient = (r * x + y * e) * _SCALE // (r * y) - e * _SCALE // r
            wrong[form] += quotient != x * _SCALE // y
    text = f"{wrong[1]} of {trials} floors wrong with r near 2^33, {wrong[0]} with r > 10^6 * 2^64"
    return wrong[0], wrong[1], text


def _short_kappa() -> _Shown:
    """Operands of Alg. 4 are far longer than 32 bits: masked for 32, they wrap around N. By the printed SDIV."""
    x, y = 183 * 10**20, 7 * 10**19  # delta * Omega and pi * d at scale 10^2L

    def off(kappa: int) -> float:
        private, sp, csp = Pair.fresh(256, as_printed=True)
        side = PaperSdivSp(sp, kappa=kappa, sigma=80, decimals=6)
        asked = ask_directly(PaperSdivCsp(csp, decimals=6, max_count=1).answer)
        result = run_exchange(side.run(sp.encrypt([mpz(x)]), sp.encrypt([mpz(y)]), Coins.fresh()), asked)
        return float(abs(private.decrypt(result[0]) / _SCALE - x / y))

    right, wrong = off(x.bit_length()), off(32)
    return right, wrong, f"error {right:.1e} with kappa = {x.bit_length()}, {wrong:.1e} with the printed 32"
