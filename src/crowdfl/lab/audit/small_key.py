"""Attack 4: a participant that was dealt eps - 2, as Fig. 6b does to save time, factors N.

eps is a multiple of lambda and 1 modulo N. Whoever holds eps less a small number tries the small numbers. This dealing exists
here alone, as an experiment.
"""

from collections.abc import Iterator

from gmpy2 import mpz

from crowdfl.crypto import pctd
from crowdfl.crypto.pctd import KeyShare
from crowdfl.lab.audit.arithmetic import factor_with
from crowdfl.lab.audit.finding import HARDENED, PAPER, Finding, conclude

__all__ = ["attack_small_key", "factors_from_share"]

_SMALL = 16  # the other share, tried up to here
_SMALL_SHARE = 2


def attack_small_key(prime_bits: int) -> list[Finding]:
    """On the small dealing, on the printed one and on that of `hardened`, where phones hold nothing and SP stands in."""
    keys = pctd.keygen(prime_bits, insecure_test_key=prime_bits < pctd.SECURE_PRIME_BITS)
    private, public = keys.private, keys.public
    small = KeyShare(public, private.lambda_ * private.u - _SMALL_SHARE)
    _, printed = private.split_as_printed()
    hardened, _ = private.split()
    return [
        _finding(f"{PAPER}, lambda_sp = 2", "participant", small, "the phone holds eps - 2"),
        _finding(
            HARDENED, "SP", hardened, f"phones hold no share; tried on SP's. As dealt by {PAPER}: {_text(printed)}"
        ),
        _whole_share(small),
    ]


def factors_from_share(share: KeyShare) -> tuple[int, int] | None:
    """p and q, if the share is a multiple of lambda less a small number."""
    for multiple in _nearby(share.exponent):
        factors = factor_with(share.public.n, multiple)
        if factors is not None:
            return factors
    return None


def _nearby(exponent: mpz) -> Iterator[mpz]:
    return (exponent + small for small in range(-_SMALL, _SMALL + 1))


def _finding(subject: str, attacker: str, share: KeyShare, note: str) -> Finding:
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
