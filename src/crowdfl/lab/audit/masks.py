"""Attacks on masks: one that is too short, and a divisor that is masked more than once.

Attack 9: SMUL's printed masks of 80 bits on operands of 78. x' = x + r with r below 2^80 confines x to (x' - 2^80, x']. PriRwd
masks the same Omega for every participant in every round, afresh: the intervals intersect in a narrow one. In `hardened` an
operand is masked once, and by sigma bits more.

The lattice attack on SDIV: y'_k = rho_k * y - s_k. Where the remainders s_k are short beside y, a few y' are an approximate
common divisor problem, and a reduced basis gives y. That is why `hardened` takes s up to rho / 2^g, with so many bits that
*any* y explains a y' as well, and why divisions by one y share one y': every further y' would narrow log y.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import log2

from gmpy2 import mpz

from crowdfl.crypto.randomness import Coins
from crowdfl.lab.audit.arithmetic import lll, rounded
from crowdfl.lab.audit.finding import HARDENED, PRINTED, Finding, conclude
from crowdfl.lab.audit.scene import Scene, servers
from crowdfl.protocols.sdiv import HardenedSdivCsp, HardenedSdivSp, SdivWidths
from crowdfl.protocols.smul import PaperSmulCsp, PaperSmulSp

__all__ = [
    "ShortRemainders",
    "attack_printed_masks",
    "attack_repeated_divisor",
    "attack_scene_masks",
    "common_divisor_near",
    "masked_divisors",
]

_PRINTED_BITS = 80
_OMEGA = 0x2C5A_1F37_88D2_04B9_6E31  # 78 bits, as Omega has at scale 10^2L for a few thousand parameters
_TIMES = 36 * 50  # participants and rounds: what is left is off by 0.2% on average
_OPERAND = ("short masks", "9", "an operand of SMUL, by CSP")
_OFF_OPERAND = "relative error; blind: the middle of the operand's range"

_DIVISOR = 0x1F3A_92C4_77D1_5B06_E8A4_3C95_D12B  # 109 bits, as G_i + eps_i + 1 has
_FEW, _MANY = 8, 96  # divisions
_FACTOR = 64  # the rho of one run in 250 have a factor in common: then so many times y explains all y' as well
_WIDTHS = (112, 60, 40, 4)  # ybits, qbits, sigma, precision
_REPEATED = ("repeated divisor", "5 (SDIV)", "a divisor masked many times, by CSP")
_OFF_DIVISOR = "error of log2 of the divisor; blind: the middle of its range"


def attack_printed_masks(prime_bits: int = 128) -> Finding:
    """Alg. 2 as printed, Omega masked for every participant in every round."""
    _, sp, csp = servers(prime_bits, as_printed=True)
    omega = sp.encrypt([_OMEGA] * _TIMES)
    _, request = PaperSmulSp(sp, mask_bits=_PRINTED_BITS).begin(omega, sp.encrypt([1] * _TIMES), Coins.fresh())
    PaperSmulCsp(csp, max_count=_TIMES).answer(request)
    guess = _narrow([int(v) for v in csp.view.of("SMUL x'")[0]], 0, _PRINTED_BITS, 78)
    return conclude(
        _OPERAND,
        ["CSP"],
        PRINTED,
        (abs(guess - _OMEGA) / _OMEGA, abs((1 << 77) - _OMEGA) / _OMEGA),
        _OFF_OPERAND,
        f"Omega = {guess:.3e} where {_OMEGA:.3e} is true",
        f"{_TIMES} intervals of 2^{_PRINTED_BITS} intersected",
    )


def attack_scene_masks(scene: Scene) -> Finding:
    """The same on what CSP opened in a run of `hardened`: the total, the first operand of the exchange."""
    widths = [int(v) for v in scene.operand_widths]
    opened = [int(v) for v in scene.csp.of("SMUL x'")[0]]
    guess = _narrow(opened[:1], 1 << widths[0], widths[0] + scene.slack, widths[0])
    middle = 1 << (widths[0] - 1)
    truth = scene.total
    return conclude(
        _OPERAND,
        ["CSP"],
        HARDENED,
        (abs(guess - truth) / truth, abs(middle - truth) / truth),
        _OFF_OPERAND,
        f"Y = {guess} where {truth} is true",
        f"one interval of 2^{widths[0] + scene.slack} about an operand of {widths[0]} bits",
    )


def _narrow(opened: Sequence[int], lowest: int, mask_bits: int, width: int) -> int:
    """The middle of what is left of [0, 2^width) when every x' - mask must hold, masks in [lowest, lowest + 2^mask_bits)."""
    low = max(0, *(v - lowest - (1 << mask_bits) + 1 for v in opened))
    high = min((1 << width) - 1, *(v - lowest for v in opened))
    return (low + high) // 2


@dataclass(frozen=True)
class ShortRemainders(SdivWidths):
    """rho just long enough to leave remainders of a few bits: 8 to 40."""

    def __post_init__(self) -> None:
        """No refusal: the point is that it should be refused."""

    @property
    def lo(self) -> int:
        return self.g + 8

    @property
    def hi(self) -> int:
        return self.g + 40


def attack_repeated_divisor(key_bits: int = 1024) -> list[Finding]:
    """Own y' for each division with short remainders; own y' with remainders as built; as built."""
    short, built = ShortRemainders(key_bits, *_WIDTHS), SdivWidths(key_bits, *_WIDTHS)
    return [
        _lattice_attack("hardened, own y' each, short remainders", short, shared=False),
        _range_attack("hardened, own y' each", built),
        _lattice_attack(HARDENED, built, shared=True),
    ]


def masked_divisors(widths: SdivWidths, times: int, *, shared: bool) -> list[int]:
    """What CSP opens as y' in divisions by one divisor, by the protocol's own code."""
    _, sp, csp = servers(widths.key_bits // 2, as_printed=False)
    divisors = sp.encrypt([_DIVISOR] * (1 if shared else times))
    _, request = HardenedSdivSp(sp, widths).begin(sp.encrypt([1 << 100] * times), divisors, Coins.fresh())
    HardenedSdivCsp(csp, max_count=times).answer(request)
    return [int(y) for y in csp.view.of("SDIV y'")[0]]


def common_divisor_near(multiples: Sequence[int], noise_bits: int) -> int | None:
    """y with every multiple within 2^noise_bits below a multiple of y, by simultaneous approximation; None if none is found.

    (q_0 2^noise, q_0 m_1 - q_1 m_0, ...) is a short vector of the lattice below; its first entry gives q_0, and m_0 / q_0 is y.
    """
    if len(multiples) < 2:
        return None
    first, *rest = sorted(multiples)
    scale = mpz(1) << noise_bits
    rows = [[scale, *map(mpz, rest)]]
    rows += [[mpz(0)] * (1 + i) + [mpz(-first)] + [mpz(0)] * (len(rest) - 1 - i) for i in range(len(rest))]
    for row in lll(rows):
        q = abs(row[0]) // scale
        y = int(rounded(mpz(first), q)) if q else 0
        # A divisor shorter than the noise divides anything: only a longer one means something.
        if y.bit_length() > noise_bits + 2 and all(-m % y < 2 << noise_bits for m in multiples):
            return y
    return None


def _lattice_attack(subject: str, widths: SdivWidths, *, shared: bool) -> Finding:
    opened = masked_divisors(widths, _FEW, shared=shared)
    guesses = (common_divisor_near(opened, bits) for bits in (24, 32, 40, 41))
    found = next((y for y in guesses if y is not None), None)
    middle = widths.ybits / 2
    error = abs(log2(found) - log2(_DIVISOR)) if found else abs(middle - log2(_DIVISOR))
    return conclude(
        _REPEATED,
        ["CSP"],
        subject,
        (error, abs(middle - log2(_DIVISOR))),
        _OFF_DIVISOR,
        _described(found) if found else "no common divisor",
        f"{len(opened)} masked divisor{'s' if len(opened) > 1 else ''} of {_FEW} divisions, reduced basis",
    )


def _described(found: int) -> str:
    times = int(rounded(mpz(found), mpz(_DIVISOR)))
    if not 1 <= times <= _FACTOR or abs(found - times * _DIVISOR) > times:
        return f"a number of {found.bit_length()} bits"
    return "the divisor" if times == 1 else f"{times} times the divisor"


def _range_attack(subject: str, widths: SdivWidths) -> Finding:
    """The lattice finds nothing, but log y' lies within rho's range of log y: the lowest and highest of many bound it."""
    opened = masked_divisors(widths, _MANY, shared=False)
    lattice = [common_divisor_near(opened[:_FEW], bits) for bits in (24, 40, widths.ybits - 3)]
    low = max(0.0, max(log2(y) for y in opened) - widths.hi)
    high = min(float(widths.ybits), min(log2(y) for y in opened) - widths.lo)
    guess, middle = (low + high) / 2, widths.ybits / 2
    return conclude(
        _REPEATED,
        ["CSP"],
        subject,
        (abs(guess - log2(_DIVISOR)), abs(middle - log2(_DIVISOR))),
        _OFF_DIVISOR,
        f"log2 y within {high - low:.0f} bits" + ("" if any(lattice) else "; no common divisor by lattice"),
        f"{_MANY} masked divisors of {_MANY} divisions: why one y' serves all",
    )
