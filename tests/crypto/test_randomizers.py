import secrets

import pytest

from crowdfl.crypto import blocks
from crowdfl.crypto.compute import Progress
from crowdfl.crypto.paillier.pctd import FreshRandomizers
from crowdfl.errors import Cancelled


def test_randomizers_vanish_under_lambda(keys):
    """Each is an N-th power, below N^2."""
    block = FreshRandomizers(keys.public).take(20)
    assert block.shape == (20, keys.public.ciphertext_bytes)
    for r in blocks.to_ints(block):
        assert pow(int(r), int(keys.private.lambda_), int(keys.public.n_squared)) == 1


def test_no_randomizer_is_given_twice(keys):
    """Within one call and between calls."""
    randomizers = FreshRandomizers(keys.public)
    taken = blocks.to_ints(randomizers.take(100)) + blocks.to_ints(randomizers.take(100))
    assert len(set(taken)) == 200


def test_none_may_be_taken(keys):
    """An empty vector needs no randomizers."""
    assert FreshRandomizers(keys.public).take(0).shape == (0, keys.public.ciphertext_bytes)


@pytest.mark.parametrize("window", range(1, 13))
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
    assert FreshRandomizers(keys.public).entropy is secrets.token_bytes


def test_sources_for_one_key_share_a_table(keys):
    """One per key and window in a process, however many encrypt."""
    assert FreshRandomizers(keys.public, 3).fixed is FreshRandomizers(keys.public, 3).fixed
    assert FreshRandomizers(keys.public, 3).fixed is not FreshRandomizers(keys.public, 4).fixed


def test_taking_can_be_watched_and_cancelled(keys):
    """Making many randomizers is long work."""
    seen = []
    FreshRandomizers(keys.public).take(9, progress=Progress(lambda done, total: seen.append((done, total))))
    assert seen[-1] == (9, 9)
    cancelled = Progress()
    cancelled.cancel()
    with pytest.raises(Cancelled):
        FreshRandomizers(keys.public).take(9, progress=cancelled)
