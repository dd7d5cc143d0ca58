"""Items 1 and 11: what the paper prints wrong, shown by running it."""

from math import log2

import numpy as np
from gmpy2 import mpz

from crowdfl.crypto import pctd
from crowdfl.crypto.randomness import Coins
from crowdfl.lab.audit.finding import PRINTED, Finding, conclude
from crowdfl.lab.audit.scene import servers
from crowdfl.protocols.sdiv import PaperSdivCsp, PaperSdivSp

__all__ = ["demonstrate", "sdiv_by"]

_SCALE = 10**6


def demonstrate() -> list[Finding]:
    """Every misprint and both errors in SDIV's bounds. "Broken": the printed form is wrong, the corrected one right."""
    return [
        _printed_divisor(),
        _printed_number(),
        _dropped_ratio(),
        _which_lambda(),
        _ignored_scale(),
        _short_kappa(),
    ]


def _shown(name: str, section: str, title: str, errors: tuple[float, float], text: str, note: str) -> Finding:
    """`errors`: of the corrected form, and of the printed one."""
    measure = "error of the corrected form; blind: error as printed"
    return conclude((name, section, title), [], PRINTED, errors, measure, text, note)


def _printed_divisor() -> Finding:
    x, y, r, alpha, e = 355, 113, 1 << 200, 12345, 67
    masked = r * x + y * (r * alpha + e)
    quotient = [masked * _SCALE // divisor - alpha * _SCALE for divisor in (r * y, r * x)]
    errors = tuple(abs(q / _SCALE - x / y) for q in quotient)
    text = f"355/113 = {quotient[0] / _SCALE}; with Y = [[x]]^r: {quotient[1] / _SCALE}"
    return _shown("Y = [[x]]^r", "1", "Alg. 1 line 1a", (errors[0], errors[1]), text, "Y must be [[y]]^r")


def _printed_number() -> Finding:
    true = round(-1.234 * _SCALE)
    text = f"-1.234 * 10^6 = {true}, printed as -123400"
    return _shown("encoding", "1", "section 4.1", (0.0, abs(true + 123400)), text, "a digit is missing")


def _dropped_ratio() -> Finding:
    """Delta = (dropped samples / kept samples) * (average - dropped model)."""
    small, large = 0.05 * 0.1, 5.0 * 0.1
    text = f"Delta {small:g} at ratio 0.05, {large:g} at ratio 5"
    return _shown(
        "dropped ratio",
        "1",
        "section 5.1",
        (small, large),
        text,
        "printed 'big enough'; Delta is small when it is small",
    )


def _which_lambda() -> Finding:
    keys = pctd.keygen(128, insecure_test_key=True)
    phone = (keys.private.lambda_ * keys.private.u - 2).bit_length()
    text = f"lambda_sp = 2 leaves the phone an exponent of {phone} bits, lambda_p = 2 one of 2"
    note = (
        "section 8 says lambda_p = 2 and lambda_sp = 2; the time it shows needs lambda_p = 2, and either factors N (4)"
    )
    return _shown("which lambda", "1", "section 8", (log2(2), float(phone)), text, note)


def _ignored_scale() -> Finding:
    """r from the bottom of the printed range, 2^(kappa+1): the remainder times 10^L need not stay below one."""
    rng, kappa, wrong = np.random.default_rng(1), 32, [0, 0]
    trials = 500
    for _ in range(trials):
        x, y, e = (int(v) for v in rng.integers(1, 1 << kappa, 3))
        for form, r in enumerate(((_SCALE << (2 * kappa)) + 1, (1 << (kappa + 1)) + 1)):
            quotient = (r * x + y * e) * _SCALE // (r * y) - e * _SCALE // r
            wrong[form] += quotient != x * _SCALE // y
    text = f"{wrong[1]} of {trials} floors wrong with r near 2^33, {wrong[0]} with r > 10^6 * 2^64"
    return _shown("factor 10^L", "11", "SDIV's floor", (wrong[0], wrong[1]), text, "the proof forgets the factor 10^L")


def _short_kappa() -> Finding:
    """Operands of Alg. 4 are far longer than 32 bits: masked for 32, they wrap around N."""
    x, y = 183 * 10**20, 7 * 10**19  # delta * Omega and pi * d at scale 10^2L
    errors = tuple(abs(sdiv_by(x, y, kappa) - x / y) for kappa in (max(x, y).bit_length(), 32))
    text = f"error {errors[0]:.1e} with kappa = {x.bit_length()}, {errors[1]:.1e} with the printed 32"
    return _shown(
        "kappa = 32", "11", "SDIV in Alg. 4", (errors[0], errors[1]), text, "kappa must cover pi * d and delta * Omega"
    )


def sdiv_by(x: int, y: int, kappa: int) -> float:
    """[[x / y]] by the printed SDIV, masks drawn for operands of kappa bits, decrypted."""
    private, sp, csp = servers(256, as_printed=True)
    side = PaperSdivSp(sp, kappa=kappa, sigma=80, decimals=6)
    pending, request = side.begin(sp.encrypt([mpz(x)]), sp.encrypt([mpz(y)]), Coins.fresh())
    result = side.finish(pending, PaperSdivCsp(csp, decimals=6, max_count=1).answer(request))
    return private.decrypt(result[0]) / _SCALE
