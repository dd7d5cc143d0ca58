"""Averages, against FedAvg in the clear on the very integers that were encrypted."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crowdfl.crypto.encoding import FixedPoint
from crowdfl.learning.oracle import fedavg
from tests.protocols.driving import empty_uploads, federation, updates

CLIP, SAMPLES, N_MAX = 16.0, 100, 5
WAYS = {
    "hardened": {"profile": "hardened", "total": "shown"},
    "hardened, total hidden": {"profile": "hardened", "total": "hidden", "key_bits": 704},
    "paper": {"profile": "paper"},
}
every_way = pytest.mark.parametrize("way", WAYS)
_made = {}


def make(way, parameters, **more):
    """One federation per way and size, with rounds enough for every example."""
    key = (way, parameters, tuple(sorted(more.items())))
    if key not in _made:
        bounds = {"max_participants": N_MAX, "max_samples": SAMPLES, "clip": CLIP, "rounds": 10_000}
        _made[key] = federation(**(bounds | WAYS[way] | more))
    return _made[key]


def check(way, models, samples, **more):
    """Every coordinate within one unit of 10^-L of FedAvg on the encoded models; the total as the setting says."""
    models = [np.asarray(model, dtype=np.float64) for model in models]
    fed = make(way, models[0].size, **more)
    encoding = FixedPoint(6, fed.settings.clip, "floor" if way == "paper" else "nearest")
    encoded = [encoding.encode(model).values for model in models]
    result = fed.round(updates(models, samples))
    off = result.average[0] * encoding.scale - fedavg(encoded, samples)
    assert np.abs(off).max() <= 1 + 1e-6
    assert result.total == (sum(samples) if way == "hardened" else None)
    return off


@every_way
@pytest.mark.parametrize("sign", [1, -1])
def test_all_weights_at_the_clip(way, sign):
    """The largest sum that honest uploads can make, on either side of zero."""
    check(way, [[sign * CLIP] * 4] * N_MAX, [SAMPLES] * N_MAX)


@every_way
def test_clips_of_both_signs_in_one_model(way):
    """Neighbouring slots at opposite ends: a borrow would show."""
    check(way, [[CLIP, -CLIP, CLIP, -CLIP], [-CLIP, CLIP, -CLIP, CLIP], [CLIP, CLIP, -CLIP, -CLIP]], [SAMPLES, 99, 1])


@every_way
def test_thirty_six_participants(way):
    """As many as the paper has, at the bound of the width budget."""
    check(way, [[(-1) ** i * CLIP, i / 7] for i in range(36)], [SAMPLES] * 36, max_participants=36)


def test_a_shown_average_is_exact_to_the_float():
    """With the total shown the reader divides integers: no unit is lost at all."""
    off = check("hardened", [[1 / 3, -1 / 7], [2 / 3, 0.1], [0.9, -0.9]], [3, 7, 90])
    assert np.abs(off).max() < 1e-6


def test_the_papers_average_is_the_exact_floor():
    """[x / y] and not one more or less, negative values included."""
    off = check("paper", [[1 / 3, -1 / 7], [2 / 3, 0.1], [0.9, -0.9]], [3, 7, 90])
    assert ((off <= 1e-6) & (off > -1)).all()


_weight = st.floats(-20, 20, allow_nan=False) | st.sampled_from([CLIP, -CLIP, 0.0, 5e-7, -5e-7])
_size = st.integers(1, 4)


@every_way
@settings(max_examples=15)
@given(data=st.data(), n=st.integers(3, N_MAX), parameters=_size)
def test_any_updates_within_the_bounds(way, data, n, parameters):
    """Any models, some beyond the clip, any samples with at least one among them."""
    models = data.draw(st.lists(st.lists(_weight, min_size=parameters, max_size=parameters), min_size=n, max_size=n))
    samples = data.draw(st.lists(st.integers(0, SAMPLES), min_size=n, max_size=n).filter(any))
    with empty_uploads():
        check(way, models, samples)


@pytest.mark.parametrize("total", ["shown", "hidden"])
def test_many_slots_and_several_rows(total):
    """More parameters than a plaintext holds, the last one padded; every parameter comes back to its own place."""
    rng = np.random.default_rng(7)
    way = "hardened" if total == "shown" else "hardened, total hidden"
    check(way, rng.normal(size=(3, 101)), [10, 20, 30])


def test_more_rows_than_a_request_holds():
    """The opening goes in chunks; the seams do not show."""
    rng = np.random.default_rng(8)
    check("hardened", rng.normal(size=(3, 3000)), [1, 2, 3], key_bits=128)
    assert len(make("hardened", 3000, key_bits=128).views()["CSP"].of("opened")) > 1


@pytest.mark.realkey
def test_one_round_under_a_real_key():
    """2048 bits, total shown, the last round read by the requester."""
    fed = federation(key_bits=2048, max_participants=36)
    rng = np.random.default_rng(9)
    models, samples = rng.normal(size=(3, 120)), [49, 49, 12]
    result = fed.round(updates(models, samples), final=True)
    assert np.abs(result.average[0] - fedavg(np.rint(models * 1e6) / 1e6, samples)).max() < 1e-9


@pytest.mark.slow
@pytest.mark.realkey
def test_the_papers_model_size_under_a_real_key():
    """277,006 parameters, total shown: some six minutes of one core, nearly all of it 2 * 5,228 partial decryptions."""
    fed = federation(key_bits=2048, max_participants=36, backend=None)
    rng = np.random.default_rng(10)
    models, samples = rng.normal(size=(3, 277_006)), [49, 1, 100]
    result = fed.round(updates(models, samples))
    expected = fedavg([np.rint(np.clip(m, -CLIP, CLIP) * 1e6) for m in models], samples)
    assert np.abs(result.average[0] * 1e6 - expected).max() <= 1
    assert result.costs["SP"].total("PDec") == result.costs["CSP"].total("PDec") == 5228
