"""What the protocols rely on, for any numbers: sums, differences and multiples of what is encrypted."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from crowdfl.crypto.paillier import pctd
from crowdfl.crypto.paillier.vector import CipherVector, combine, signed_values


def reduced(m: int, n: int) -> int:
    """The number in (-N/2, N/2) that is congruent to m."""
    m %= n
    return m if 2 * m < n else m - n


plaintexts = st.integers(-(2**126) + 1, 2**126 - 1) | st.integers(-3, 3)  # inside (-N/2, N/2) for every 128-bit N
small = st.integers(-(10**9), 10**9)
columns = st.lists(st.tuples(plaintexts, plaintexts), max_size=5)


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
    """Modulo N, into the signed range."""
    n = int(keys.public.n)
    x, y = keys.public.encrypt(a), keys.public.encrypt(b)
    assert keys.private.decrypt(x + y) == reduced(a + b, n)
    assert keys.private.decrypt(x - y) == reduced(a - b, n)
    assert keys.private.decrypt(-x) == -a


@given(a=plaintexts, k=plaintexts)
def test_multiples_of_a_ciphertext(keys, a, k):
    """By any signed scalar, from either side."""
    n = int(keys.public.n)
    c = keys.public.encrypt(a)
    assert keys.private.decrypt(c * k) == keys.private.decrypt(k * c) == reduced(a * k, n)


@given(a=small, b=small, c=small, k=small)
def test_the_laws_of_arithmetic_hold(keys, a, b, c, k):
    """Associative, commutative and distributive, as ciphertexts bit for bit."""
    x, y, z = (keys.public.encrypt(m) for m in (a, b, c))
    assert x + y == y + x
    assert (x + y) + z == x + (y + z)
    assert (x + y) * k == x * k + y * k
    assert keys.private.decrypt((x + y) * k - z) == (a + b) * k - c


@given(rows=columns)
def test_vectors_add_subtract_and_return(keys, rows):
    """Entry by entry through the threshold decryption of the whole vector."""
    n = int(keys.public.n)
    a, b = keys.encrypt(x for x, _ in rows), keys.encrypt(y for _, y in rows)
    for vector, expected in ((a + b, [x + y for x, y in rows]), (a - b, [x - y for x, y in rows])):
        residues = combine(*(vector.partial_decrypt(share) for share in keys.shares))
        assert signed_values(residues, keys.public) == [reduced(m, n) for m in expected]


@given(rows=columns, k=plaintexts)
def test_vectors_scale(keys, rows, k):
    """By one scalar, and by one for each entry."""
    n = int(keys.public.n)
    vector = keys.encrypt(x for x, _ in rows)
    assert keys.read(vector * k) == [reduced(x * k, n) for x, _ in rows]
    assert keys.read(vector.scale_each(y for _, y in rows)) == [reduced(x * y, n) for x, y in rows]


@given(numbers=st.lists(plaintexts, max_size=5))
def test_vectors_survive_their_binary_form(keys, numbers):
    """To bytes and back is the same vector."""
    vector = keys.encrypt(numbers)
    assert CipherVector.from_bytes(vector.to_bytes(), keys.public, max_count=len(numbers)) == vector


@given(data=st.data(), numbers=st.lists(small, min_size=1, max_size=12))
def test_buckets_keep_the_signed_total(keys, data, numbers):
    """However the entries fall into buckets, the buckets together hold the signed sum of all."""
    count = len(numbers)
    order = data.draw(st.permutations(range(count)))
    signs = data.draw(st.lists(st.booleans(), min_size=count, max_size=count))
    buckets = data.draw(st.integers(1, count))
    sums = keys.read(keys.encrypt(numbers).bucket_sums(np.array(order), np.array(signs), buckets))
    assert sum(sums) == sum(-numbers[i] if minus else numbers[i] for i, minus in zip(order, signs, strict=True))
