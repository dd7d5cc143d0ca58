"""The number theory that the attacks share: continued fractions, lattice reduction, factoring."""

from collections.abc import Sequence
from fractions import Fraction

import gmpy2
from gmpy2 import mpz

_BASES = 300  # every other prime below splits N
_SURPRISE = 64  # a partial quotient this many bits long does not happen by chance


def fraction_behind(x: int, y: int) -> Fraction | None:
    """The short fraction that x/y modulo 1 is extremely close to, or None if there is none.

    Continued fractions: a convergent just before an enormous partial quotient is far closer than chance allows.
    """
    a, b = mpz(y), mpz(x) % y
    before, now = (mpz(1), mpz(0)), (mpz(0), mpz(1))  # numerators and denominators of the last two convergents
    room = a.bit_length() // 2 - _SURPRISE
    while now[1].bit_length() <= room:
        quotient, rest = gmpy2.f_divmod(a, b) if b else (mpz(1) << (_SURPRISE + 1), mpz(0))
        if quotient.bit_length() > _SURPRISE:
            return Fraction(int(now[0]), int(now[1]))
        a, b = b, rest
        before, now = now, (quotient * now[0] + before[0], quotient * now[1] + before[1])
    return None


def factor_with(n: mpz, multiple: int) -> tuple[int, int] | None:
    """The factors of N from a multiple of lambda(N), or None if it is none: square roots of one give them away."""
    odd, twos = mpz(multiple), 0
    if odd <= 0:
        return None
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    for base in range(2, _BASES):
        power = gmpy2.powmod(base, odd, n)
        for _ in range(twos):
            square = power * power % n
            if square == 1 and power not in (1, n - 1):
                p = gmpy2.gcd(power - 1, n)
                return int(p), int(n // p)
            power = square
        if power != 1:
            return None
    return None


def lll(rows: Sequence[Sequence[int]]) -> list[list[mpz]]:
    """A reduced basis of the lattice of these rows (Lenstra, Lenstra, Lovasz with delta = 3/4, all in integers)."""
    basis = [[mpz(x) for x in row] for row in rows]
    size = len(basis)
    d = [mpz(1)] + [mpz(0)] * size  # d[i+1]: Gram determinant of the first i+1 rows
    mu = [[mpz(0)] * size for _ in range(size)]  # mu[i][j]: the Gram-Schmidt coefficient times d[j+1]
    k = 1
    while k < size:
        _orthogonalise(basis, mu, d, k - 1)
        _orthogonalise(basis, mu, d, k)
        _shorten(basis, mu, d, k, k - 1)
        if 4 * d[k + 1] * d[k - 1] < 3 * d[k] ** 2 - 4 * mu[k][k - 1] ** 2:
            basis[k], basis[k - 1] = basis[k - 1], basis[k]
            k = max(1, k - 1)
            continue
        for j in range(k - 2, -1, -1):
            _shorten(basis, mu, d, k, j)
        k += 1
    return basis


def rounded(numerator: mpz, denominator: mpz) -> mpz:
    return (2 * numerator + denominator) // (2 * denominator)


def _orthogonalise(basis: list[list[mpz]], mu: list[list[mpz]], d: list[mpz], k: int) -> None:
    for j in range(k + 1):
        u = sum((a * b for a, b in zip(basis[k], basis[j], strict=True)), mpz(0))
        for i in range(j):
            u = (d[i + 1] * u - mu[k][i] * mu[j][i]) // d[i]
        if j < k:
            mu[k][j] = u
        else:
            d[k + 1] = u


def _shorten(basis: list[list[mpz]], mu: list[list[mpz]], d: list[mpz], k: int, j: int) -> None:
    if 2 * abs(mu[k][j]) <= d[j + 1]:
        return
    q = rounded(mu[k][j], d[j + 1])
    basis[k] = [a - q * b for a, b in zip(basis[k], basis[j], strict=True)]
    mu[k][j] -= q * d[j + 1]
    for i in range(j):
        mu[k][i] -= q * mu[j][i]
