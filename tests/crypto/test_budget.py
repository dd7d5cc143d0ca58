from math import ceil

import numpy as np
import pytest
from gmpy2 import mpz
from hypothesis import assume, given
from hypothesis import strategies as st

from crowdfl.crypto import blocks
from crowdfl.crypto.paillier.budget import WidthBudget, bits
from crowdfl.crypto.paillier.packing import Packing
from crowdfl.crypto.paillier.vector import RunningProduct, combine, encrypt
from crowdfl.errors import SlotOverflow, TooManyUploads, WidthBudgetExceeded, WidthError

# The paper's experiment: 36 users of 70 windows, 277,006 parameters, 5 rounds.
PAPER = {"key_bits": 2048, "parameters": 277_006, "max_participants": 36, "max_samples": 70, "rounds": 5}
SIGNS = st.sampled_from(["plus", "minus", "alternating"])


def extreme(budget: WidthBudget, signs: str) -> np.ndarray:
    """The largest weights an honest participant can have, of the given signs."""
    pattern = {"plus": [1, 1], "minus": [-1, -1], "alternating": [1, -1]}[signs]
    return np.resize(np.array(pattern, dtype=np.int64), budget.parameters) * budget.encoding.bound


@st.composite
def budgets(draw, key_bits: int, most_participants: int, most_parameters: int, **fixed):
    """A budget of any settings that fit the key."""
    settings = {
        "max_participants": draw(st.integers(1, most_participants)),
        "max_samples": draw(st.integers(1, 10_000)),
        "parameters": draw(st.integers(1, most_parameters)),
        "clip": draw(st.sampled_from([0.5, 1.0, 16.0, 1000.0]) | st.floats(0.001, 100)),
        "decimals": draw(st.integers(0, 8)),
        "rounds": draw(st.integers(1, 20)),
        "sigma": draw(st.integers(1, 60)),
        "lanes": draw(st.sampled_from([0, 0, 1, 10, None])),
        "total": draw(st.sampled_from(["shown", "hidden"])),
    } | fixed
    try:
        return WidthBudget(key_bits, **settings)
    except WidthBudgetExceeded:
        assume(False)


@given(signs=SIGNS, data=st.data())
def test_everyone_at_the_bound_sums_exactly_under_encryption(wide_keys, signs, data):
    """All participants at +-bound, packed, encrypted, multiplied together, decrypted: no slot is off by one."""
    budget = data.draw(budgets(256, 5, 12, lanes=0, total="shown"))
    packing = budget.packing(wide_keys.public)
    upload = budget.weigh(extreme(budget, signs), budget.max_samples)
    total = RunningProduct(wide_keys.public, budget.ciphertexts, budget.max_participants)
    for _ in range(budget.max_participants):
        total.add(encrypt(wide_keys.randomizers, packing.pack(upload)))
    partials = [total.result().partial_decrypt(share) for share in wide_keys.shares]
    sums = budget.check_sum(packing.unpack(combine(*partials), budget.parameters))
    assert sums.tolist() == [budget.max_participants * int(v) for v in upload]
    with pytest.raises(TooManyUploads, match=str(budget.max_participants)):
        total.add(encrypt(wide_keys.randomizers, packing.pack(upload)))


@given(signs=SIGNS, budget=budgets(2048, 10**6, 200))
def test_everyone_at_the_bound_sums_exactly_in_large_campaigns(signs, budget):
    """The same at the level of residues modulo N, for up to a million participants."""
    n = mpz(2) ** 2047 + 1
    packing = Packing(n, budget.slots, budget.slot_bits)
    upload = budget.weigh(extreme(budget, signs), budget.max_samples)
    packed = blocks.to_ints(packing.pack(upload))
    summed = blocks.from_ints([budget.max_participants * t % n for t in packed], blocks.width_of(n))
    expected = [budget.max_participants * int(v) for v in upload]
    assert packing.unpack_wide(summed, budget.parameters) == expected
    assert budget.check_sum(np.array(expected, dtype=object)).tolist() == expected


@given(budget=budgets(2048, 10**6, 10**6))
def test_a_slot_is_as_wide_as_its_widest_use(budget):
    """Sums, masked lanes and dithered averages all fit, and the slot is no wider than the widest needs."""
    bound = ceil(budget.clip * 10**budget.decimals)
    assert budget.upload_bound == budget.max_samples * bound
    assert budget.sum_bound == budget.max_participants * budget.max_samples * bound
    assert (budget.ciphertexts - 1) * budget.slots < budget.parameters <= budget.ciphertexts * budget.slots
    assert budget.upload_bytes == (budget.ciphertexts + 1) * 512  # one more, for the sample count
    needs = [bits(budget.sum_bound) + 2]
    if budget.lanes != 0:
        bucket = ceil(budget.ciphertexts / budget.buckets)
        openings = budget.max_participants * budget.buckets * budget.slots * budget.rounds
        mask = bits(bucket * budget.upload_bound) + 1 + budget.sigma + bits(openings)
        assert budget.lane_bound == bucket * budget.upload_bound
        assert budget.lane_mask_bits == mask
        assert bucket * budget.upload_bound + 2 ** (mask - 1) <= 2**mask
        needs.append(mask + 1)
    if budget.total == "hidden":
        k = bits(budget.sum_bound) + 1 + budget.sigma + bits(budget.parameters * budget.rounds)
        assert budget.dither_bits == k
        needs.append(bits(budget.encoding.bound) + k + 2)
    assert budget.slot_bits == max(needs)


@given(budget=budgets(2048, 10**6, 10**6, lanes=0))
def test_no_slot_is_wasted(budget):
    """One slot more of the same width would not fit."""
    with pytest.raises(WidthError):
        Packing(mpz(2) ** 2047 + 1, budget.slots + 1, budget.slot_bits)


def test_the_papers_experiment_packs_53_without_rewards_and_20_with_them():
    """With 4096 lanes at sigma = 40; the sketch has as many buckets as give those lanes."""
    budget = WidthBudget(**PAPER)
    assert (budget.slots, budget.slot_bits, budget.ciphertexts, budget.buckets) == (53, 38, 5227, 0)
    rewarding = WidthBudget(**PAPER, lanes=4096, sigma=40)
    assert rewarding.slots == 20
    assert (rewarding.buckets - 1) * 20 < 4096 <= rewarding.buckets * 20


def test_there_are_at_most_as_many_buckets_as_ciphertexts():
    """As many for exact distances (lanes=None); a small model is not padded up to the lanes asked for."""
    for budget in (WidthBudget(**PAPER, lanes=None), WidthBudget(2048, 100, 36, 70, lanes=4096)):
        assert budget.buckets == budget.ciphertexts


@pytest.mark.parametrize(
    ("values", "samples", "message"),
    [
        *(([5, -6, 0], samples, r"0\.\.70") for samples in (-1, 71)),
        *(([0, 0, sign * 16_000_001], 1, r"1 values exceed 16000000.*position 2") for sign in (1, -1)),
        *(([0] * count, 1, f"{count} parameters; the task has 3") for count in (0, 2, 4)),
    ],
)
def test_what_the_task_has_no_room_for_is_refused(values, samples, message):
    """The bounds themselves are taken."""
    budget = WidthBudget(**PAPER | {"parameters": 3})
    assert budget.weigh(np.array([5, -6, 16_000_000]), 70).tolist() == [350, -420, 1_120_000_000]
    assert budget.weigh(np.array([5, -6, -16_000_000]), 0).tolist() == [0, 0, 0]
    with pytest.raises(SlotOverflow, match=message):
        budget.weigh(np.array(values, dtype=np.int64), samples)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_weighing_never_wraps(dtype):
    """The product is exact, whatever kind of integers the values came in."""
    budget = WidthBudget(2048, 2, 3, 1000)
    values = np.array([16_000_000, -16_000_000], dtype=dtype)
    assert budget.weigh(values, 1000).tolist() == [16_000_000_000, -16_000_000_000]


@pytest.mark.parametrize("sign", [1, -1])
def test_a_sum_beyond_all_honest_uploads_is_refused(sign):
    """The guard bit shows one unit too many."""
    budget = WidthBudget(**PAPER)
    assert budget.check_sum(np.array([sign * budget.sum_bound])).tolist() == [sign * budget.sum_bound]
    with pytest.raises(SlotOverflow, match=r"1 sums exceed.*position 1"):
        budget.check_sum(np.array([0, sign * (budget.sum_bound + 1)]))


@given(budget=budgets(2048, 1000, 100, total="shown"))
def test_one_dishonest_upload_is_seen_and_not_wrapped(budget):
    """A slot has room for twice the honest sum, so that check_sum has something to see."""
    packing = Packing(mpz(2) ** 2047 + 1, budget.slots, budget.slot_bits)
    doubled = [2 * budget.sum_bound, -2 * budget.sum_bound]
    assert packing.unpack_wide(packing.pack_wide(doubled), 2) == doubled


def test_budgets_that_cannot_fit_are_refused_with_the_numbers():
    """What is needed, what there is, and what to change."""
    with pytest.raises(WidthBudgetExceeded) as caught:
        WidthBudget(64, 10, max_participants=1000, max_samples=1000, rounds=3, sigma=40, lanes=10, total="hidden")
    message = str(caught.value)
    for part in (
        "|N| = 64 holds 63",
        "1000 samples",
        "16000000000",
        "1000 participants",
        "sigma 40",
        "k = ",
        "longer key",
    ):
        assert part in message


def test_the_last_budget_that_fits():
    """A slot of exactly |N| - 1 bits is taken; one participant more is refused."""
    most = 2**61 - 1  # bits + 2 = 63
    fits = WidthBudget(64, 1, max_participants=most, max_samples=1, clip=1.0, decimals=0)
    assert (fits.slots, fits.slot_bits) == (1, 63)
    with pytest.raises(WidthBudgetExceeded, match="64 bits"):
        WidthBudget(64, 1, max_participants=most + 1, max_samples=1, clip=1.0, decimals=0)


def test_one_upload_fits_a_machine_word():
    """63 bits are taken, one more sample is refused."""
    most = 2**63 - 1
    budget = WidthBudget(2048, 1, max_participants=1, max_samples=most, clip=1.0, decimals=0)
    assert budget.weigh(np.array([-1]), most).tolist() == [-most]
    with pytest.raises(WidthBudgetExceeded, match=r"64 bits of 63.*max_samples"):
        WidthBudget(2048, 1, max_participants=1, max_samples=most + 1, clip=1.0, decimals=0)


def test_a_model_without_parameters_is_refused():
    with pytest.raises(WidthBudgetExceeded, match="no parameter"):
        WidthBudget(**PAPER | {"parameters": 0})


def test_a_budget_belongs_to_a_key_length(keys):
    """Packing under a longer or shorter key is refused with both lengths."""
    with pytest.raises(WidthBudgetExceeded, match=r"2048.*128"):
        WidthBudget(**PAPER).packing(keys.public)


@pytest.mark.parametrize(
    ("settings", "lines"),
    [
        ({}, ["one upload", "sum of uploads", "packing"]),
        ({"lanes": 4096}, ["one upload", "sum of uploads", "masked lanes", "packing"]),
        ({"total": "hidden"}, ["one upload", "sum of uploads", "hidden total", "packing"]),
        (
            {"lanes": None, "total": "hidden"},
            ["one upload", "sum of uploads", "masked lanes", "hidden total", "packing"],
        ),
    ],
    ids=str,
)
def test_explain_has_a_line_for_each_use(settings, lines):
    """One for each width that was derived, with its numbers."""
    budget = WidthBudget(**PAPER, **settings)
    explained = budget.explain().splitlines()
    assert [line[:14].strip() for line in explained] == lines
    assert str(budget.upload_bound) in explained[0]
    assert str(budget.sum_bound) in explained[1]
    assert f"{budget.slots} slots of {budget.slot_bits} bits in |N| = 2048" in explained[-1]
