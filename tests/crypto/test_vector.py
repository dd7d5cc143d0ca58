"""Vectors against the scalar cryptosystem, entry by entry."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crowdfl.crypto import blocks
from crowdfl.crypto.compute import Progress, Threads
from crowdfl.crypto.paillier.vector import (
    CipherVector,
    PartialVector,
    RunningProduct,
    combine,
    encrypt,
    residues,
    signed_values,
)
from crowdfl.errors import (
    Cancelled,
    FormatError,
    KeyMismatch,
    LengthMismatch,
    PlaintextOutOfRange,
    SharesDoNotMatch,
    TooManyUploads,
)

NUMBERS = [0, 1, -1, 10**12, -(10**12), 77, -78]


def values(vector) -> list[int]:
    """The numbers modulo N^2 in a vector."""
    return [int(x) for x in blocks.to_ints(vector.block)]


class Counting(Threads):
    """Counts the rows of its batches."""

    def __init__(self):
        super().__init__(1)
        self.rows = 0

    def map(self, kernel, *given, **options):
        self.rows += len(given[0])
        return super().map(kernel, *given, **options)


class Spent:
    """A source of randomizers that counts what was taken, all of them 1."""

    def __init__(self, public) -> None:
        self.public = public
        self.taken = 0

    def take(self, count: int, *, progress: Progress | None = None) -> blocks.Block:
        """`count` ones."""
        self.taken += count
        return blocks.from_ints([1] * count, self.public.ciphertext_bytes)


def test_encrypting_equals_the_scalar_with_the_same_randomizers(keys, backend):
    made = keys.randomizers.take(len(NUMBERS))

    class Fixed(Spent):
        def take(self, count: int, *, progress: Progress | None = None) -> blocks.Block:
            return made[:count]

    vector = encrypt(Fixed(keys.public), NUMBERS, backend=backend)
    scalar = [keys.public.encrypt(m, randomizer=r) for m, r in zip(NUMBERS, blocks.to_ints(made), strict=True)]
    assert vector == CipherVector.of(scalar, keys.public)


def test_each_entry_takes_its_own_randomizer(keys):
    """Two encryptions of the same numbers share no ciphertext."""
    assert len(set(values(keys.encrypt([5] * 50)) + values(keys.encrypt([5] * 50)))) == 100


def test_plaintexts_out_of_range_take_no_randomizer(keys):
    """They are refused before anything is spent."""
    source, most = Spent(keys.public), int(keys.public.n) // 2
    for numbers in ([0, most + 1], [-most - 1]):
        with pytest.raises(PlaintextOutOfRange):
            encrypt(source, numbers)
    assert source.taken == 0
    assert keys.read(encrypt(source, [most, -most])) == [most, -most]


def test_residues_that_are_none_take_no_randomizer(keys):
    source, n = Spent(keys.public), keys.public.n
    for block in (blocks.from_ints([0, n], 16), blocks.from_ints([1], 17), np.zeros(16, dtype=np.uint8)):
        with pytest.raises(FormatError):
            encrypt(source, block)
    assert source.taken == 0
    assert keys.read(encrypt(source, blocks.from_ints([n - 1], 16))) == [-1]


@given(pairs=st.lists(st.tuples(st.integers(-(10**30), 10**30), st.integers(-(10**30), 10**30)), max_size=6))
def test_arithmetic_equals_the_scalar(keys, pairs):
    a, b = keys.encrypt(x for x, _ in pairs), keys.encrypt(y for _, y in pairs)
    assert values(a + b) == [(a[i] + b[i]).value for i in range(len(pairs))]
    assert values(a - b) == [(a[i] - b[i]).value for i in range(len(pairs))]
    assert values(a.negate()) == [(-a[i]).value for i in range(len(pairs))]
    assert keys.read(a - b) == [x - y for x, y in pairs]


@given(k=st.integers(-(10**30), 10**30) | st.sampled_from([0, 1, -1]))
def test_scaling_equals_the_scalar(keys, k):
    vector = keys.encrypt(range(-2, 3))
    assert values(vector * k) == values(k * vector) == [(vector[i] * k).value for i in range(5)]
    assert keys.read(vector.scale(k)) == [m * k for m in range(-2, 3)]


@given(factors=st.lists(st.integers(-(10**30), 10**30) | st.sampled_from([0, 1, -1, 255, 256]), max_size=6))
def test_scaling_each_equals_the_scalar(keys, factors):
    """A signed factor for each entry, of any mix of lengths and signs."""
    vector = keys.encrypt(range(1, len(factors) + 1))
    scaled = vector.scale_each(factors)
    assert values(scaled) == [(vector[i] * k).value for i, k in enumerate(factors)]
    assert keys.read(scaled) == [(i + 1) * k for i, k in enumerate(factors)]


@given(rows=st.lists(st.tuples(st.integers(-(10**30), 10**30), st.integers(-(10**30), 10**30)), max_size=6))
def test_adding_known_plaintexts(keys, rows):
    """The same plaintext sums as adding encryptions, with no randomizer spent."""
    vector = keys.encrypt(x for x, _ in rows)
    known = residues((keys.public.residue(y) for _, y in rows), keys.public)
    added = vector.add_plain(known)
    assert keys.read(added) == [x + y for x, y in rows]
    assert added == vector.add(encrypt(Spent(keys.public), [y for _, y in rows]))


def test_rerandomising_keeps_the_plaintexts_and_changes_every_ciphertext(keys, other_keys):
    vector = keys.encrypt(NUMBERS)
    fresh = vector.rerandomise(keys.randomizers)
    assert keys.read(fresh) == NUMBERS
    assert set(values(fresh)).isdisjoint(values(vector))
    with pytest.raises(KeyMismatch):
        vector.rerandomise(other_keys.randomizers)


def test_parts_and_their_joint(keys, other_keys):
    vector = keys.encrypt(NUMBERS)
    assert keys.read(vector.part(2, 4)) == NUMBERS[2:4]
    assert keys.read(vector.part(5)) == NUMBERS[5:]
    assert CipherVector.concat([vector.part(0, 3), vector.part(3)]) == vector
    with pytest.raises(KeyMismatch):
        CipherVector.concat([vector, other_keys.encrypt([1])])


def test_factors_are_bounded_like_plaintexts(keys):
    """Half of N is the end, for one factor and for many."""
    vector, beyond = keys.encrypt([1, 2]), int(keys.public.n) // 2 + 1
    with pytest.raises(PlaintextOutOfRange):
        vector.scale(beyond)
    with pytest.raises(PlaintextOutOfRange):
        vector.scale_each([1, -beyond])


def test_every_entry_needs_its_factor(keys):
    for factors in ([1], [1, 2, 3]):
        with pytest.raises(LengthMismatch, match=f"{len(factors)} factors for 2"):
            keys.encrypt([1, 2]).scale_each(factors)


@pytest.mark.parametrize("size", [1, 2, 3, 6])
def test_sums_of_neighbours(keys, size):
    """Of as many additions as one after the other, whatever the batches are."""
    numbers = [3, -1, 40, 5, 0, -7]
    backend = Counting()
    found = keys.encrypt(numbers).sums(size, backend=backend)
    assert keys.read(found) == [sum(numbers[i : i + size]) for i in range(0, 6, size)]
    assert backend.rows == 6 // size * (size - 1)


@pytest.mark.parametrize("size", [0, 4])
def test_sums_that_do_not_come_out_are_refused(keys, size):
    with pytest.raises(LengthMismatch):
        keys.encrypt([1] * 6).sums(size)


def test_scaling_by_a_block_is_scaling_by_its_numbers(keys):
    vector = keys.encrypt([2, -3])
    assert vector.scale_each(blocks.from_ints([5, 300], 2)) == vector.scale_each([5, 300])
    with pytest.raises(LengthMismatch):
        vector.scale_each(blocks.from_ints([5], 2))


@given(data=st.data(), count=st.integers(1, 20))
def test_bucket_sums_are_signed_sums(keys, data, count):
    """Any order, signs and number of buckets, also where the buckets are uneven."""
    buckets = data.draw(st.integers(1, count))
    order = data.draw(st.permutations(range(count)))
    signs = data.draw(st.lists(st.booleans(), min_size=count, max_size=count))
    numbers = [10**i for i in range(count)]
    expected = [0] * buckets
    for j, place in enumerate(order):
        expected[j % buckets] += -numbers[place] if signs[j] else numbers[place]
    sums = keys.encrypt(numbers).bucket_sums(np.array(order), np.array(signs), buckets)
    assert keys.read(sums) == expected


@pytest.mark.parametrize(("places", "signs", "buckets"), [(4, 5, 2), (5, 4, 2), (5, 5, 0), (5, 5, -1), (5, 5, 6)])
def test_bucket_sums_refuse_what_does_not_match(keys, places, signs, buckets):
    with pytest.raises(LengthMismatch):
        keys.encrypt(range(5)).bucket_sums(np.arange(places), np.zeros(signs, dtype=np.bool_), buckets)


@pytest.mark.parametrize("constant_time", [False, True])
def test_partial_decryption_equals_the_scalar(keys, backend, constant_time):
    """By each share; together they give the plaintexts."""
    vector = keys.encrypt(NUMBERS)
    partials = [vector.partial_decrypt(s, constant_time=constant_time, backend=backend) for s in keys.shares]
    for share, partial in zip(keys.shares, partials, strict=True):
        assert values(partial) == [share.partial_decrypt(vector[i]).value for i in range(len(NUMBERS))]
    opened = combine(*partials, backend=backend)
    assert opened.shape == (len(NUMBERS), keys.public.plaintext_bytes)
    assert signed_values(opened, keys.public) == NUMBERS


def test_shares_that_do_not_fit_are_refused(keys):
    vector = keys.encrypt(NUMBERS)
    first, stranger = vector.partial_decrypt(keys.shares[0]), vector.partial_decrypt(keys.private.split()[1])
    for second in (first, stranger):
        with pytest.raises(SharesDoNotMatch):
            combine(first, second)


def test_operations_refuse_to_mix_keys(keys, other_keys):
    """Every operation on two vectors, or on a vector and a share."""
    ours, theirs = keys.encrypt([1]), other_keys.encrypt([1])
    mixes = [
        lambda: ours + theirs,
        lambda: ours - theirs,
        lambda: ours.partial_decrypt(other_keys.shares[0]),
        lambda: combine(ours.partial_decrypt(keys.shares[0]), theirs.partial_decrypt(other_keys.shares[1])),
        lambda: RunningProduct(keys.public, 1, 1).add(theirs),
        lambda: CipherVector.of([theirs[0]], keys.public),
    ]
    for mix in mixes:
        with pytest.raises(KeyMismatch):
            mix()


def test_operations_refuse_unequal_lengths(keys):
    two, three = keys.encrypt([1, 2]), keys.encrypt([1, 2, 3])
    first, second = (v.partial_decrypt(s) for v, s in zip((two, three), keys.shares, strict=True))
    for mix in (lambda: two + three, lambda: two - three, lambda: combine(first, second)):
        with pytest.raises(LengthMismatch, match="2 and 3"):
            mix()


def test_a_block_of_another_width_is_no_vector(keys):
    """The numbers of a vector are as wide as N^2."""
    for block in (blocks.empty(2, 31), blocks.empty(2, 33), np.zeros(32, dtype=np.uint8)):
        with pytest.raises(LengthMismatch, match="32 bytes"):
            CipherVector(keys.public, block)


def test_an_empty_vector_takes_part_in_everything(keys, backend):
    nothing = keys.encrypt([])
    for result in (nothing + nothing, nothing - nothing, nothing.scale(-3), nothing.scale_each([]), nothing.negate()):
        assert (len(result), result) == (0, nothing)
    assert len(combine(*(nothing.partial_decrypt(share, backend=backend) for share in keys.shares))) == 0
    assert CipherVector.from_bytes(nothing.to_bytes(), keys.public, max_count=0, backend=backend) == nothing


def test_operations_leave_their_operands_alone(keys):
    a, b = keys.encrypt([1, -2, 3]), keys.encrypt([4, 5, 6])
    before = a.block.tobytes() + b.block.tobytes()
    _ = a + b, a - b, a * -3, a.scale_each([-1, 0, 2]), a.negate(), a.partial_decrypt(keys.shares[0])
    a.bucket_sums(np.array([2, 0, 1]), np.array([True, False, True]), 2)
    total = RunningProduct(keys.public, 3, 2)
    total.add(a)
    total.add(b)
    assert a.block.tobytes() + b.block.tobytes() == before


def test_vectors_compare_by_content_key_and_kind(keys, other_keys):
    """A vector of partial decryptions is no vector of ciphertexts, whatever its bytes."""
    vector = keys.encrypt([1, 2])
    assert vector == CipherVector(keys.public, vector.block.copy())
    assert vector != CipherVector(keys.public, vector.block[::-1])
    assert vector != CipherVector(other_keys.public, vector.block)
    assert vector != PartialVector(keys.public, vector.block)
    with pytest.raises(TypeError):
        hash(vector)


@given(numbers=st.lists(st.integers(-100, 100), max_size=9), cuts=st.sets(st.integers(0, 9)))
def test_groups_of_uploads_give_the_same_running_product(keys, numbers, cuts):
    """Bit for bit, however the uploads are grouped; a group may be empty."""
    uploads = [keys.encrypt([m, 2 * m]) for m in numbers]
    one_by_one, grouped = (RunningProduct(keys.public, 2, len(numbers)) for _ in range(2))
    for upload in uploads:
        one_by_one.add(upload)
    places = [0, *sorted(cuts), len(uploads)]
    for start, stop in pairwise(places):
        grouped.add_all(uploads[start:stop])
    assert grouped.count == one_by_one.count == len(numbers)
    assert grouped.result() == one_by_one.result()


def test_a_group_goes_in_whole_or_not_at_all(keys, other_keys):
    """One too many, another length, another key: none of the group is counted."""
    good = keys.encrypt([1, 2])
    for bad, error in (
        (good, TooManyUploads),
        (keys.encrypt([1]), LengthMismatch),
        (other_keys.encrypt([1, 2]), KeyMismatch),
    ):
        total = RunningProduct(keys.public, 2, 3)
        total.add(good)
        with pytest.raises(error):
            total.add_all([good, good, bad])
        assert (keys.read(total.result()), total.count) == ([1, 2], 1)


def test_running_product_of_nothing_is_zero(keys):
    assert keys.read(RunningProduct(keys.public, 3, 1).result()) == [0, 0, 0]


def test_running_product_keeps_results_apart(keys):
    total = RunningProduct(keys.public, 1, 3)
    total.add(keys.encrypt([5]))
    taken = total.result()
    total.add(keys.encrypt([6]))
    total.add(keys.encrypt([7]))
    assert (keys.read(taken), keys.read(total.result())) == ([5], [18])


def test_an_addition_that_stops_leaves_the_sum_as_it_was(keys, backend):
    """A cancelled upload is neither counted nor half added, and may be tried again."""
    total = RunningProduct(keys.public, 3000, 2, backend=backend)
    ones = encrypt(Spent(keys.public), [1] * 3000)
    total.add(ones)
    before, progress = total.result(), Progress()
    progress.on_progress = lambda done, _total: progress.cancel() if done else None
    with pytest.raises(Cancelled):
        total.add(ones, progress=progress)
    assert (total.result(), total.count) == (before, 1)
    total.add(ones)
    assert total.result() == ones.scale(2)


def test_every_batch_can_be_watched_and_cancelled(keys):
    a, b = keys.encrypt([1, 2, 3]), keys.encrypt([4, 5, 6])
    partials = [a.partial_decrypt(share) for share in keys.shares]
    order, signs = np.arange(3), np.zeros(3, dtype=np.bool_)
    total = RunningProduct(keys.public, 3, 5)
    total.add(b)  # the first upload is only copied
    batches = {
        "encrypt": lambda progress: encrypt(keys.randomizers, [1, 2, 3], progress=progress),
        "add": lambda progress: a.add(b, progress=progress),
        "subtract": lambda progress: a.subtract(b, progress=progress),
        "negate": lambda progress: a.negate(progress=progress),
        "add_plain": lambda progress: a.add_plain(residues([1, 2, 3], keys.public), progress=progress),
        "rerandomise": lambda progress: a.rerandomise(keys.randomizers, progress=progress),
        "scale": lambda progress: a.scale(5, progress=progress),
        "scale_each": lambda progress: a.scale_each([1, 2, 3], progress=progress),
        "bucket_sums": lambda progress: a.bucket_sums(order, signs, 3, progress=progress),
        "partial_decrypt": lambda progress: a.partial_decrypt(keys.shares[0], progress=progress),
        "combine": lambda progress: combine(*partials, progress=progress),
        "running product": lambda progress: total.add(a, progress=progress),
        "group of a running product": lambda progress: RunningProduct(keys.public, 3, 3).add_all(
            [a, b, a], progress=progress
        ),
    }
    for name, batch in batches.items():
        seen = []
        batch(Progress(lambda done, total, seen=seen: seen.append((done, total))))
        assert seen[-1] == (3, 3), name
        cancelled = Progress()
        cancelled.cancel()
        with pytest.raises(Cancelled):
            batch(cancelled)


def test_an_entry_is_the_scalar_ciphertext(keys):
    """Indexing counts from either end and stops at the ends."""
    vector = keys.encrypt([4, 5, 6])
    assert [keys.private.decrypt(vector[i]) for i in (0, 1, 2, -1)] == [4, 5, 6, 6]
    assert [keys.private.decrypt(c) for c in vector] == [4, 5, 6]
    with pytest.raises(IndexError):
        vector[3]
