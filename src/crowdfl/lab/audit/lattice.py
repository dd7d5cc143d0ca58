"""The lattice attack on a divisor that is masked more than once.

y'_k = rho_k * y - s_k. Where the remainders s_k are short beside y, a few y' are an approximate common divisor problem, and a
reduced basis gives y: that is why `hardened` takes s up to rho / 2^g, with so many bits that *any* y explains a y' as
well, and why divisions by one y share one y' all the same: every further y' would narrow log y by its place in rho's range.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import log2

from gmpy2 import mpz

from crowdfl.crypto import pctd
from crowdfl.crypto.randomness import Coins
from crowdfl.lab.audit.arithmetic import lll, rounded
from crowdfl.lab.audit.finding import HARDENED, Finding, conclude
from crowdfl.protocols.party import Party
from crowdfl.protocols.sdiv import HardenedSdivCsp, HardenedSdivSp, SdivWidths

__all__ = ["ShortRemainders", "attack_repeated_divisor", "common_divisor_near", "masked_divisors"]

_DIVISOR = 0x1F3A_92C4_77D1_5B06_E8A4_3C95_D12B  # 109 bits, as G_i + eps_i + 1 has
_TIMES = 8
_MANY = 96
_FACTOR = 64  # the rho of one run in 250 have a factor in common: then so many times y explains all y' as well
_WIDTHS = (112, 60, 40, 4)  # ybits, qbits, sigma, precision
_PLACE = ("repeated divisor", "5 (SDIV)", "a divisor masked many times, by CSP")
_MEASURE = "error of log2 of the divisor; blind: the middle of its range"


@dataclass(frozen=True)
class ShortRemainders(SdivWidths):
    """rho just long enough to leave remainders of a few bits: 8 to 40."""

    def __post_init__(self) -> None:
        """No refusal: the point is that it should be refused."""

    @property
    def lo(self) -> int:
        """Too low."""
        return self.g + 8

    @property
    def hi(self) -> int:
        """Too low."""
        return self.g + 40


def attack_repeated_divisor(key_bits: int = 1024) -> list[Finding]:
    """Own y' for each division with short remainders; own y' with remainders as built; as built."""
    short, built = ShortRemainders(key_bits, *_WIDTHS), SdivWidths(key_bits, *_WIDTHS)
    return [
        _attack("hardened, own y' each, short remainders", short, shared=False),
        _range_attack("hardened, own y' each", built),
        _attack(HARDENED, built, shared=True),
    ]


def masked_divisors(widths: SdivWidths, times: int, *, shared: bool) -> list[int]:
    """What CSP opens as y' in divisions by one divisor, by the protocol's own code."""
    keys = pctd.keygen(widths.key_bits // 2, insecure_test_key=True)
    first, second = keys.private.split()
    sp, csp = Party("SP", keys.public, first), Party("CSP", keys.public, second)
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


def _attack(subject: str, widths: SdivWidths, *, shared: bool) -> Finding:
    opened = masked_divisors(widths, _TIMES, shared=shared)
    guesses = (common_divisor_near(opened, bits) for bits in (24, 32, 40, 41))
    found = next((y for y in guesses if y is not None), None)
    middle = widths.ybits / 2
    error = abs(log2(found) - log2(_DIVISOR)) if found else abs(middle - log2(_DIVISOR))
    return conclude(
        _PLACE,
        ["CSP"],
        subject,
        (error, abs(middle - log2(_DIVISOR))),
        _MEASURE,
        _described(found) if found else "no common divisor",
        f"{len(opened)} masked divisor{'s' if len(opened) > 1 else ''} of {_TIMES} divisions, reduced basis",
    )


def _described(found: int) -> str:
    times = int(rounded(mpz(found), mpz(_DIVISOR)))
    if not 1 <= times <= _FACTOR or abs(found - times * _DIVISOR) > times:
        return f"a number of {found.bit_length()} bits"
    return "the divisor" if times == 1 else f"{times} times the divisor"


def _range_attack(subject: str, widths: SdivWidths) -> Finding:
    """The lattice finds nothing, but log y' lies within rho's range of log y: the lowest and highest of many bound it."""
    opened = masked_divisors(widths, _MANY, shared=False)
    lattice = [common_divisor_near(opened[:_TIMES], bits) for bits in (24, 40, widths.ybits - 3)]
    low = max(0.0, max(log2(y) for y in opened) - widths.hi)
    high = min(float(widths.ybits), min(log2(y) for y in opened) - widths.lo)
    guess, middle = (low + high) / 2, widths.ybits / 2
    return conclude(
        _PLACE,
        ["CSP"],
        subject,
        (abs(guess - log2(_DIVISOR)), abs(middle - log2(_DIVISOR))),
        _MEASURE,
        f"log2 y within {high - low:.0f} bits" + ("" if any(lattice) else "; no common divisor by lattice"),
        f"{_MANY} masked divisors of {_MANY} divisions: why one y' serves all",
    )
