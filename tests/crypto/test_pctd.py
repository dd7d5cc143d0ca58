import math
import os

import gmpy2
import pytest
from gmpy2 import mpz
from hypothesis import given
from hypothesis import strategies as st

from crowdfl.crypto import blocks
from crowdfl.crypto.compute import Progress
from crowdfl.crypto.entropy import SOURCE
from crowdfl.crypto.paillier import pctd
from crowdfl.crypto.paillier.pctd import (
    Ciphertext,
    FreshRandomizers,
    KeyShare,
    PartialDecryption,
    PrivateKey,
    PublicKey,
)
from crowdfl.crypto.randomness import secret_bytes
from crowdfl.errors import (
    Cancelled,
    CiphertextOutOfRange,
    InsecureKeyRefused,
    InvalidKey,
    KeyMismatch,
    NotAUnit,
    PlaintextOutOfRange,
    SharesDoNotMatch,
)


def factors(private: PrivateKey) -> tuple[int, int]:
    """p and q, from N = p*q and lambda = (p-1)(q-1)."""
    n = int(private.public.n)
    total = n + 1 - int(private.lambda_)
    root = math.isqrt(total * total - 4 * n)
    return (total - root) // 2, (total + root) // 2


@pytest.fixture(scope="module", params=[16, 17, 24, 33, 64, 100, 128])
def fresh_pair(request):
    """A new pair at each of several lengths."""
    return pctd.keygen(request.param, insecure_test_key=True), request.param


def test_primes_are_what_the_base_of_randomizers_needs(fresh_pair):
    """P and q are primes, 3 mod 4, of equal length, with gcd(p-1, q-1) = 2 and gcd(N, lambda) = 1."""
    pair, prime_bits = fresh_pair
    p, q = factors(pair.private)
    assert p * q == pair.public.n
    assert gmpy2.is_prime(p)
    assert gmpy2.is_prime(q)
    assert (p % 4, q % 4) == (3, 3)
    assert (p.bit_length(), q.bit_length(), pair.public.bits) == (prime_bits, prime_bits, 2 * prime_bits)
    assert math.gcd(p - 1, q - 1) == 2
    assert math.gcd(p * q, (p - 1) * (q - 1)) == 1


def test_primes_are_far_apart(fresh_pair):
    pair, prime_bits = fresh_pair
    p, q = factors(pair.private)
    assert (q - p).bit_length() > prime_bits - min(100, prime_bits // 2)


def test_a_second_prime_close_to_the_first_is_not_taken(monkeypatch):
    """Even when it is fit in every other way."""

    def fits(p: int, q: int) -> bool:
        return q % 4 == 3 and math.gcd(p - 1, q - 1) == 2 and math.gcd(p * q, (p - 1) * (q - 1)) == 1

    def next_fit(p: int, start: int) -> mpz:
        return next(mpz(q) for q in range(start, start + 10**6) if gmpy2.is_prime(q) and fits(p, q))

    p = next_fit(7, 3 * 2**62)
    close, far = next_fit(p, int(p) + 1), next_fit(p, 7 * 2**61)
    draws = iter([p, close, far])
    monkeypatch.setattr(pctd, "random_prime", lambda _bits: next(draws))
    assert pctd.keygen(64, insecure_test_key=True).public.n == p * far


def test_h_s_is_a_power_of_n_and_no_square(fresh_pair):
    """h_s = h^N with h = -x^2: it dies under lambda, and is a non-residue modulo both primes."""
    pair, _ = fresh_pair
    public, p_and_q = pair.public, factors(pair.private)
    assert pow(int(public.h_s), int(pair.private.lambda_), int(public.n_squared)) == 1
    for prime in p_and_q:
        assert pow(int(public.h_s), (prime - 1) // 2, prime) == prime - 1


def test_private_key_holds_lambda_and_its_inverse(fresh_pair):
    """lambda*u = 1 mod N, with u reduced."""
    pair, _ = fresh_pair
    assert pair.private.lambda_ * pair.private.u % pair.public.n == 1
    assert 0 < pair.private.u < pair.public.n


def test_two_keygens_give_two_keys():
    first, second = (pctd.keygen(32, insecure_test_key=True).public for _ in range(2))
    assert first.n != second.n
    assert first.fingerprint != second.fingerprint


@pytest.mark.parametrize("prime_bits", [64, 1023])
def test_short_keys_are_refused_unless_asked_for(prime_bits):
    """A test key has to be asked for by name."""
    with pytest.raises(InsecureKeyRefused, match=f"{prime_bits} bits.*insecure_test_key=True"):
        pctd.keygen(prime_bits)


def test_a_received_short_public_key_is_refused_unless_asked_for(keys):
    """The refusal also covers keys made elsewhere."""
    with pytest.raises(InsecureKeyRefused):
        PublicKey(keys.public.n, keys.public.h_s)


@pytest.mark.parametrize("prime_bits", [0, 1, 15, 8193])
def test_lengths_that_make_no_key_are_refused(prime_bits):
    with pytest.raises(InvalidKey, match=r"16\.\.8192"):
        pctd.keygen(prime_bits, insecure_test_key=True)


@pytest.mark.parametrize(
    ("n", "h_s"),
    [
        (mpz(2) ** 127 + 2, mpz(2)),  # even
        (mpz(2) ** 126 + 1, mpz(2)),  # 127 bits
        (mpz(2) ** 29 + 1, mpz(2)),  # 30 bits
        (mpz(2) ** 16385 + 1, mpz(2)),  # 16386 bits
        (mpz(-5), mpz(2)),
        (mpz(2) ** 127 + 1, mpz(0)),
        (mpz(2) ** 127 + 1, (mpz(2) ** 127 + 1) ** 2),
        (mpz(2) ** 127 + 1, mpz(3)),  # 3 divides 2^127 + 1
    ],
)
def test_numbers_that_form_no_public_key_are_refused(n, h_s):
    with pytest.raises(InvalidKey):
        PublicKey(n, h_s, insecure_test_key=True)


def test_numbers_that_form_no_private_key_are_refused(keys):
    """U must be the inverse of lambda."""
    with pytest.raises(InvalidKey):
        PrivateKey(keys.public, keys.private.lambda_, keys.private.u + 1)
    with pytest.raises(InvalidKey):
        PrivateKey(keys.public, -keys.private.lambda_, -keys.private.u)


@pytest.mark.realkey
def test_default_key_is_secure(real_keys):
    """2048 bits, and no warning in its repr."""
    assert real_keys.public.bits == 2048
    assert real_keys.public.is_secure
    assert "INSECURE" not in repr(real_keys.public)
    assert (real_keys.public.plaintext_bytes, real_keys.public.ciphertext_bytes) == (256, 512)


def test_test_keys_say_so(keys):
    """The repr of a short key carries the warning everywhere it is shown."""
    assert not keys.public.is_secure
    for shown in (keys.public, keys.private, keys.shares[0]):
        assert "INSECURE TEST KEY" in repr(shown)


def test_no_repr_shows_a_secret(keys):
    """Neither decimal nor hexadecimal digits of lambda, u, a share, a ciphertext or a partial decryption."""
    c = keys.public.encrypt(5)
    partial = keys.shares[0].partial_decrypt(c)
    pair = pctd.KeyPair(keys.public, keys.private)
    shown = " ".join(map(repr, (pair, keys.private, keys.public, *keys.shares, c, partial))).lower()
    secrets = [keys.private.lambda_, keys.private.u, *(share.exponent for share in keys.shares), c.value, partial.value]
    for secret in map(int, secrets):
        assert str(secret) not in shown
        assert f"{secret:x}" not in shown


def test_fingerprint_covers_the_base_of_randomizers(keys):
    """Two keys that differ in h_s alone have two names."""
    twin = PublicKey(keys.public.n, keys.public.h_s + keys.public.n, insecure_test_key=True)
    assert twin.fingerprint != keys.public.fingerprint
    with pytest.raises(KeyMismatch):
        keys.public.require_same(twin)


def test_plaintexts_reach_exactly_to_half_of_n(keys):
    """(N-1)/2 and its negative are the last that fit."""
    most = int(keys.public.n) // 2
    for m in (most, -most, 0, 1, -1):
        assert keys.private.decrypt(keys.public.encrypt(m)) == m
    for m in (most + 1, -most - 1):
        with pytest.raises(PlaintextOutOfRange):
            keys.public.encrypt(m)


def test_randomizers_hide_and_vanish(keys):
    """Both kinds are N-th powers, so lambda removes them, and no two are alike."""
    for make in (keys.public.randomizer, keys.public.printed_randomizer):
        made = [int(make()) for _ in range(20)]
        assert len(set(made)) == 20
        assert all(pow(r, int(keys.private.lambda_), int(keys.public.n_squared)) == 1 for r in made)


def test_the_edges_of_the_ciphertext_space(keys):
    n_squared = keys.public.n_squared
    assert keys.public.ciphertext(1).value == 1
    assert keys.public.ciphertext(n_squared - 1).value == n_squared - 1
    for value in (-1, 0, n_squared):
        with pytest.raises(CiphertextOutOfRange):
            keys.public.ciphertext(value)


def test_numbers_that_share_a_factor_with_n_are_refused(keys):
    p, q = factors(keys.private)
    for value in (p, q, 5 * p, q * q, p * q, 2 * p * q):
        with pytest.raises(NotAUnit):
            keys.public.ciphertext(value)


def test_uniform_split_adds_to_eps_modulo_lambda_n(keys):
    """Shares below lambda*N whose sum is 0 mod lambda and 1 mod N."""
    lambda_, n = keys.private.lambda_, keys.public.n
    for _ in range(20):
        first, second = (share.exponent for share in keys.private.split())
        assert 0 <= first < lambda_ * n
        assert 0 <= second < lambda_ * n
        assert (first + second) % lambda_ == 0
        assert (first + second) % n == 1


def test_uniform_split_reaches_past_eps(keys):
    """Shares are spread over all of [0, lambda*N), not only up to eps."""
    lambda_, n = keys.private.lambda_, keys.public.n
    halves = [2 * share.exponent >= lambda_ * n for _ in range(40) for share in keys.private.split()]
    assert 4 < sum(halves) < 76


def test_printed_split_adds_to_eps_exactly(keys):
    """lambda_1 in [1, eps] and lambda_2 = eps - lambda_1, as integers."""
    eps = keys.private.lambda_ * keys.private.u
    for _ in range(20):
        first, second = (share.exponent for share in keys.private.split_as_printed())
        assert 1 <= first <= eps
        assert first + second == eps


@pytest.mark.parametrize("bound_value", [0, -1], ids=["lowest", "highest"])
def test_printed_split_range_at_its_ends(keys, monkeypatch, bound_value):
    """The draw covers 1 and eps themselves."""
    eps = keys.private.lambda_ * keys.private.u
    monkeypatch.setattr(pctd, "random_below", lambda bound: mpz(bound_value % bound))
    first, second = (share.exponent for share in keys.private.split_as_printed())
    assert (first, second) == ((1, eps - 1) if bound_value == 0 else (eps, 0))


@pytest.mark.parametrize("split", ["split", "split_as_printed"])
def test_two_shares_decrypt_together(keys, split):
    first, second = getattr(keys.private, split)()
    for m in (0, 1, -1, 10**9, -(10**9), int(keys.public.n) // 2, -(int(keys.public.n) // 2)):
        c = keys.public.encrypt(m)
        m_1, m_2 = first.partial_decrypt(c), second.partial_decrypt(c)
        assert pctd.combine(m_1, m_2) == pctd.combine(m_2, m_1) == m


def test_partial_decryptions_that_do_not_belong_together_do_not_fit(keys):
    """Of another split, of one share twice, of two ciphertexts."""
    c, other, (_, stranger) = keys.public.encrypt(3), keys.public.encrypt(3), keys.private.split()
    first, second = keys.shares
    for wrong in (stranger.partial_decrypt(c), first.partial_decrypt(c), second.partial_decrypt(other)):
        with pytest.raises(SharesDoNotMatch):
            pctd.combine(first.partial_decrypt(c), wrong)


def test_a_wrong_private_key_is_noticed(keys):
    """Dec of what is not an encryption under lambda comes out uneven."""
    wrong = PrivateKey(keys.public, keys.private.lambda_ + keys.public.n, keys.private.u)
    with pytest.raises(SharesDoNotMatch):
        wrong.decrypt(keys.public.encrypt(3))


def test_constant_time_reaches_the_protected_power(keys, monkeypatch):
    """The flag is passed on, and not set unasked."""
    seen = []

    def spy(base: int, exponent: int, modulus: int) -> mpz:
        seen.append(exponent)
        return mpz(pow(base, exponent, modulus))

    monkeypatch.setattr(pctd.gmpy2, "powmod_sec", spy)
    c, share = keys.public.encrypt(5), keys.shares[0]
    share.partial_decrypt(c)
    keys.private.decrypt(c)
    assert seen == []
    share.partial_decrypt(c, constant_time=True)
    keys.private.decrypt(c, constant_time=True)
    assert seen == [share.exponent, keys.private.lambda_]


def test_constant_time_takes_every_share_a_printed_split_can_give(keys):
    """lambda_1 = eps leaves lambda_2 = 0, whose partial decryption is 1."""
    zero = KeyShare(keys.public, mpz(0))
    c = keys.public.encrypt(4)
    assert zero.partial_decrypt(c).value == 1
    assert zero.partial_decrypt(c, constant_time=True).value == 1


def test_operations_refuse_to_mix_keys(keys, other_keys):
    a, b = keys.public.encrypt(1), other_keys.public.encrypt(2)
    m_1, m_2 = keys.shares[0].partial_decrypt(a), other_keys.shares[1].partial_decrypt(b)
    mixes = [
        lambda: a + b,
        lambda: a - b,
        lambda: keys.private.decrypt(b),
        lambda: keys.shares[0].partial_decrypt(b),
        lambda: pctd.combine(m_1, m_2),
    ]
    for mix in mixes:
        with pytest.raises(KeyMismatch, match=keys.public.fingerprint.hex()[:16]) as caught:
            mix()
        assert other_keys.public.fingerprint.hex()[:16] in str(caught.value)


def test_scalars_reach_exactly_to_half_of_n(keys):
    c, most = keys.public.encrypt(1), int(keys.public.n) // 2
    assert keys.private.decrypt(c * most) == most
    assert keys.private.decrypt(-most * c) == -most
    for k in (most + 1, -most - 1):
        with pytest.raises(PlaintextOutOfRange):
            c * k


def test_values_compare_by_number_and_key(keys, other_keys):
    """The same number under two keys is not the same ciphertext."""
    assert Ciphertext(mpz(5), keys.public) == Ciphertext(mpz(5), keys.public)
    assert Ciphertext(mpz(5), keys.public) != Ciphertext(mpz(5), other_keys.public)
    assert PartialDecryption(mpz(5), keys.public) != PartialDecryption(mpz(6), keys.public)


@pytest.mark.realkey
def test_real_key_decrypts_by_both_ways_at_the_bound(real_keys):
    """Dec and TDec at 2048 bits, extreme plaintexts, constant time included."""
    most = int(real_keys.public.n) // 2
    for m in (most, -most, -1):
        c = real_keys.public.encrypt(m)
        assert real_keys.private.decrypt(c, constant_time=True) == m
        assert pctd.combine(*(share.partial_decrypt(c) for share in real_keys.shares)) == m


def reduced(m: int, n: int) -> int:
    """The number in (-N/2, N/2) that is congruent to m."""
    m %= n
    return m if 2 * m < n else m - n


plaintexts = st.integers(-(2**126) + 1, 2**126 - 1) | st.integers(-3, 3)  # inside (-N/2, N/2) for every 128-bit N


@given(m=plaintexts)
def test_what_is_encrypted_is_decrypted(keys, m):
    """By Dec and by TDec, the sign included."""
    c = keys.public.encrypt(m)
    assert keys.private.decrypt(c) == m
    assert pctd.combine(*(share.partial_decrypt(c) for share in keys.shares)) == m


@given(m=st.integers())
def test_every_integer_has_one_signed_form(keys, m):
    """signed(m mod N) lies in (-N/2, N/2) and is congruent to m."""
    n = int(keys.public.n)
    signed = keys.public.signed(m % n)
    assert -n < 2 * signed < n
    assert (signed - m) % n == 0
    assert keys.public.residue(signed) == m % n


@given(a=plaintexts, b=plaintexts)
def test_sums_and_differences_of_ciphertexts(keys, a, b):
    n = int(keys.public.n)
    x, y = keys.public.encrypt(a), keys.public.encrypt(b)
    assert keys.private.decrypt(x + y) == reduced(a + b, n)
    assert keys.private.decrypt(x - y) == reduced(a - b, n)
    assert keys.private.decrypt(-x) == -a


@given(a=plaintexts, k=plaintexts)
def test_multiples_of_a_ciphertext(keys, a, k):
    n = int(keys.public.n)
    c = keys.public.encrypt(a)
    assert keys.private.decrypt(c * k) == keys.private.decrypt(k * c) == reduced(a * k, n)


@pytest.mark.parametrize("window", [1, 2, 5, 8, 12])
def test_fresh_randomizers_are_powers_of_h_s(keys, window):
    """h_s to the exponent that the bytes drawn spell, for every window."""
    exponents = [1, 2**64 - 1, 0x0123456789ABCDEF]
    drawn = b"".join(e.to_bytes(8, "big") for e in exponents)
    randomizers = FreshRandomizers(keys.public, window, entropy=lambda size: drawn[:size])
    taken = blocks.to_ints(randomizers.take(3))
    assert taken == [pow(int(keys.public.h_s), e, int(keys.public.n_squared)) for e in exponents]


def test_fresh_exponents_have_half_the_bits_of_n(keys):
    """As much randomness is drawn as the assumption asks for."""
    asked = []

    def draw(size: int) -> bytes:
        asked.append(size)
        return bytes(size)

    FreshRandomizers(keys.public, entropy=draw).take(5)
    assert asked == [5 * 128 // 2 // 8]


def test_the_operating_system_gives_the_exponents_by_default(keys):
    """Nothing weaker is used unless it is passed in."""
    assert FreshRandomizers(keys.public).entropy is secret_bytes
    assert SOURCE.get() is os.urandom


def test_sources_for_one_key_share_a_table(keys):
    """One per key and window in a process, however many encrypt."""
    assert FreshRandomizers(keys.public, 3).fixed is FreshRandomizers(keys.public, 3).fixed
    assert FreshRandomizers(keys.public, 3).fixed is not FreshRandomizers(keys.public, 4).fixed


def test_taking_can_be_watched_and_cancelled(keys):
    seen = []
    FreshRandomizers(keys.public).take(9, progress=Progress(lambda done, total: seen.append((done, total))))
    assert seen[-1] == (9, 9)
    cancelled = Progress()
    cancelled.cancel()
    with pytest.raises(Cancelled):
        FreshRandomizers(keys.public).take(9, progress=cancelled)
