"""Attacks on masks: one that is too short, a divisor that is masked more than once.

Attack 9: SMUL's printed masks of 80 bits on operands of 78. x' = x + r with r below 2^80 confines x to (x' - 2^80, x']. PriRwd
masks the same Omega for every participant in every round, afresh: the intervals intersect in a narrow one. `hardened` masks
operands uniformly modulo N: no x' confines anything, however often an operand is masked. With coins that draw shorter masks on
purpose, the same protocol falls to the same attack.

The lattice attack on SDIV: y'_k = rho_k * y - s_k. Where the remainders s_k are short beside y, a few y' are an approximate
common divisor problem, and a reduced basis gives y. That is why `hardened` takes s up to rho / 2^g, with so many bits that
*any* y explains a y' as well, and why divisions by one y share one y': every further y' would narrow log y.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import log2

from gmpy2 import mpz
from sympy import ZZ
from sympy.polys.matrices import DomainMatrix

from crowdfl.crypto.coins import Coins
from crowdfl.protocols.common.sdiv import HardenedSdivSp, SdivWidths, guard_polynomials
from crowdfl.protocols.common.smul import (
    PaperSmulCsp,
    PaperSmulSp,
    PolynomialsCsp,
    PolynomialsRequest,
    PolynomialsSp,
    products_in,
)
from crowdfl.protocols.exchange import ask_directly, run_exchange
from crowdfl.protocols.party import KeyedParty
from crowdfl_lab.audit.finding import DIVISOR_LOG, HARDENED, PRINTED, Attack, Finding, Measure, relative
from crowdfl_lab.audit.recorded_round import ShortCoins
from crowdfl_lab.division import DivisionCsp, Pair

_PRINTED_BITS = 80
_OMEGA = 0x2C5A_1F37_88D2_04B9_6E31  # 78 bits, as Omega has at scale 10^2L for a few thousand parameters
_TIMES = 36 * 50  # participants and rounds: what is left is off by 0.2% on average
_OPERAND_OFF = Measure(relative, "relative error; blind: the middle of the operand's range")
_OPERAND = Attack("short masks", "9", "an operand of SMUL, by CSP", ("CSP",), _OPERAND_OFF)

_DIVISOR = 0x1F3A_92C4_77D1_5B06_E8A4_3C95_D12B  # 109 bits, as G_i + eps_i + 1 has
_FEW, _MANY = 8, 96  # divisions
_FACTOR = 64  # the rho of one run in 250 have a factor in common: then so many times y explains all y' as well
_WIDTHS = (112, 60, 40, 4)  # ybits, qbits, sigma, precision
_REPEATED = Attack("repeated divisor", "5 (SDIV)", "a divisor masked many times, by CSP", ("CSP",), DIVISOR_LOG)


def attack_printed_masks(prime_bits: int = 128) -> Finding:
    """Alg. 2 as printed, Omega masked for every participant in every round."""
    _, sp, csp = Pair.fresh(prime_bits, as_printed=True)
    omega = sp.encrypt([_OMEGA] * _TIMES)
    step = PaperSmulSp(sp, mask_bits=_PRINTED_BITS).run(omega, sp.encrypt([1] * _TIMES), Coins.fresh())
    PaperSmulCsp(csp, max_count=_TIMES).answer(next(step))
    return _score_omega(PRINTED, csp, _PRINTED_BITS)


def attack_repeated_operand(prime_bits: int = 128) -> Iterator[Finding]:
    """The same Omega as often in SMUL of `hardened`: with masks as short as the printed ones, and as built."""
    for subject, coins, mask_bits in (
        ("hardened, short operand masks", ShortCoins.fresh(), _PRINTED_BITS),
        (HARDENED, Coins.fresh(), 2 * prime_bits),
    ):
        (_, sp, csp), squares = Pair.fresh(prime_bits), guard_polynomials(_TIMES)
        step = PolynomialsSp(sp, 1, "audit").run(sp.encrypt([_OMEGA] * _TIMES), squares, coins)
        message = PolynomialsRequest.from_bytes(next(step), csp.limits(_TIMES))
        PolynomialsCsp(csp).answer(message, products_in(squares))
        yield _score_omega(subject, csp, mask_bits)


def _score_omega(subject: str, csp: KeyedParty, mask_bits: int) -> Finding:
    guess = _narrow([int(v) for v in csp.view.of("SMUL x'")[0]], mask_bits, 78)
    recovered = f"Omega = {guess:.3e} where {_OMEGA:.3e} is true"
    return _OPERAND.score(
        subject, guess, 1 << 77, _OMEGA, recovered, f"{_TIMES} intervals of 2^{mask_bits} intersected"
    )


def _narrow(opened: Sequence[int], mask_bits: int, width: int) -> int:
    """The middle of what is left of [0, 2^width) when every x' - mask must hold, masks in [0, 2^mask_bits)."""
    low = max(0, *(v - (1 << mask_bits) + 1 for v in opened))
    high = min((1 << width) - 1, *opened)
    return (low + high) // 2


@dataclass(frozen=True)
class _ShortRemainders(SdivWidths):
    """rho just long enough to leave remainders of a few bits: 8 to 40."""

    def __post_init__(self) -> None:
        """No refusal: the point is that it should be refused."""

    @property
    def lo(self) -> int:
        return self.g + 8

    @property
    def hi(self) -> int:
        return self.g + 40


def attack_repeated_divisor(key_bits: int = 1152) -> list[Finding]:
    """Own y' for each division with short remainders; own y' with remainders as built; as built."""
    short, built = _ShortRemainders(key_bits, *_WIDTHS), SdivWidths(key_bits, *_WIDTHS)
    return [
        _lattice_attack("hardened, own y' each, short remainders", short, shared=False),
        _range_attack("hardened, own y' each", built),
        _lattice_attack(HARDENED, built, shared=True),
    ]


def _masked_divisors(widths: SdivWidths, times: int, *, shared: bool) -> list[int]:
    """What CSP opens as y' in divisions by one divisor, by the protocol's own code."""
    _, sp, csp = Pair.fresh(widths.key_bits // 2)
    divisors = sp.encrypt([_DIVISOR] * (1 if shared else times))
    division = HardenedSdivSp(sp, widths, 1, "audit").run(sp.encrypt([1 << 100] * times), divisors, Coins.fresh())
    run_exchange(division, ask_directly(DivisionCsp(csp, widths, times, len(divisors)).answer))
    return [int(y) for y in csp.view.of("SDIV y'")[0]]


def _lattice_attack(subject: str, widths: SdivWidths, *, shared: bool) -> Finding:
    opened = _masked_divisors(widths, _FEW, shared=shared)
    guesses = (common_divisor_near(opened, bits) for bits in (24, 32, 40, 41))
    found = next((y for y in guesses if y is not None), None)
    recovered = "no common divisor"
    if found is not None:
        times = int(_rounded(mpz(found), mpz(_DIVISOR)))
        right = 1 <= times <= _FACTOR and abs(found - times * _DIVISOR) <= times
        multiple = "the divisor" if times == 1 else f"{times} times the divisor"
        recovered = multiple if right else f"a number of {found.bit_length()} bits"
    note = f"{len(opened)} masked divisor{'s' if len(opened) > 1 else ''} of {_FEW} divisions, reduced basis"
    return _REPEATED.score(subject, log2(found) if found else None, widths.ybits / 2, log2(_DIVISOR), recovered, note)


def _range_attack(subject: str, widths: SdivWidths) -> Finding:
    """The lattice finds nothing, but log y' lies within rho's range of log y: the lowest and highest of many bound it."""
    opened = _masked_divisors(widths, _MANY, shared=False)
    lattice = [common_divisor_near(opened[:_FEW], bits) for bits in (24, 40, widths.ybits - 3)]
    low = max(0.0, max(log2(y) for y in opened) - widths.hi)
    high = min(float(widths.ybits), min(log2(y) for y in opened) - widths.lo)
    recovered = f"log2 y within {high - low:.0f} bits" + ("" if any(lattice) else "; no common divisor by lattice")
    note = f"{_MANY} masked divisors of {_MANY} divisions: why one y' serves all"
    return _REPEATED.score(subject, (low + high) / 2, widths.ybits / 2, log2(_DIVISOR), recovered, note)


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
    for row in DomainMatrix(rows, (len(multiples), len(multiples)), ZZ).lll().to_list():
        q = abs(row[0]) // scale
        y = int(_rounded(mpz(first), q)) if q else 0
        # A divisor shorter than the noise divides anything: only a longer one means something.
        if y.bit_length() > noise_bits + 2 and all(-m % y < 2 << noise_bits for m in multiples):
            return y
    return None


def _rounded(numerator: mpz, denominator: mpz) -> mpz:
    return (2 * numerator + denominator) // (2 * denominator)
