"""Checks of bounds and products of lanes: two servers against whole numbers."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from crowdfl.crypto.shares.ring import Ring
from crowdfl.errors import RewardsOff, RoundEnded
from crowdfl.protocols.shares.circuits import lanes
from crowdfl.protocols.shares.circuits.program import CSP, SP, CspRun, CspSide, SpSide
from crowdfl.protocols.shares.dealing.rounds import DealtLanes, SumMasks
from crowdfl.protocols.shares.round import checks
from tests.protocols.shares.dealing import joined
from tests.protocols.shares.lane_round import Round, Upload, honest, widths_of

_WIDTHS = widths_of()
_D = _WIDTHS.parameters
_BOUND = 2000  # max_norm in units
_few = settings(max_examples=12, deadline=None)


def _spread(length: float, seed: int = 0) -> np.ndarray:
    """An update of this length, all entries alike up to their signs."""
    signs = np.where(np.random.default_rng(seed).integers(0, 2, _D) == 1, 1, -1)
    return (signs * int(length / _D**0.5)).astype(np.int64)


def _sparse(*values: int) -> np.ndarray:
    return np.array([*values, *[0] * (_D - len(values))], dtype=np.int64)


def _good(count: int = 4) -> list[Upload]:
    return [honest(_spread(_BOUND, seed), 10 + seed) for seed in range(count)]


_updates = st.lists(st.integers(-150, 150), min_size=_D, max_size=_D)


@_few
@given(st.lists(st.tuples(_updates, st.integers(1, 50)), min_size=3, max_size=6), st.integers(1, 500))
def test_all_products_are_exact(people: list[tuple[list[int], int]], seed: int) -> None:
    uploads = [honest(update, samples) for update, samples in people]
    one = Round(_WIDTHS, uploads, seed=seed)
    (sp, mine), (csp, theirs) = one.run()
    kept, bits = sp.lanes.places, _WIDTHS.R
    assert sp.verdict.accepted == list(range(len(people)))
    z = [[found[place] for place in kept] for found in (one.lanes_of(upload.entries) for upload in uploads)]
    total = [sum(column) for column in zip(*z, strict=True)]

    def dot(a: list[int], b: list[int]) -> int:
        return sum(x * y for x, y in zip(a, b, strict=True))

    assert joined(sp.lengths, csp.lengths, bits) == [dot(row, row) for row in z]
    assert joined(mine.with_sum, theirs.with_sum, bits) == [dot(row, total) for row in z]
    assert joined([mine.sum_square], [theirs.sum_square], bits) == [dot(total, total)]
    assert joined(sp.samples, csp.samples, bits) == [samples for _, samples in people]
    assert joined(sp.sample_squares, csp.sample_squares, bits) == [samples**2 for _, samples in people]
    assert (mine.beside, theirs.beside) == (b"\1" * 5, b"\0" * 5)


def test_what_was_shown_of_the_samples_is_them_and_the_dealt_root() -> None:
    one = Round(_WIDTHS, _good())
    (sp, _), (csp, _) = one.run()
    assert sp.samples_shown == csp.samples_shown
    roots = one.dealt[2].counts.roots.share[:4]
    assert [(shown - root) % 2**_WIDTHS.R for shown, root in zip(sp.samples_shown, roots, strict=True)] == [
        10,
        11,
        12,
        13,
    ]


_ONCE = widths_of(weighting="equal", pay="equal")


@pytest.mark.parametrize("declared", [1, 50, 10**30])
def test_where_everyone_counts_once_the_length_alone_is_checked(declared: int) -> None:
    """An upload that is multiplied by a number of samples is too long, whatever is declared beside it."""
    fine, far = [Upload(_spread(_BOUND, seed), declared) for seed in range(4)], Upload(_spread(_BOUND) * 10, declared)
    (sp, _), (csp, _) = Round(_ONCE, [*fine, far]).run(products=False)
    assert sp.verdict.accepted == csp.verdict.accepted == [0, 1, 2, 3]
    assert (sp.samples, sp.sample_squares, sp.samples_shown) == ([], [], [])


def test_where_everyone_counts_once_messages_and_dealt_files_hold_nothing_of_samples() -> None:
    rounds = [Round(replace(_ONCE, has_counts=counted), _good()) for counted in (True, False)]
    for one in rounds:
        one.run(products=False)
    more = [len(a) - len(b) for a, b in zip(rounds[0].sent[SP], rounds[1].sent[SP], strict=True)]
    assert more == [4 * (16 + _ONCE.R // 8), 1, 0, 0]  # the counts, and a byte of bits that gate


def _half_ring(count: int) -> np.ndarray:
    return np.array([-(1 << (_WIDTHS.k - 1))] * count + [0] * (_D - count), dtype=np.int64)


def test_shares_that_never_carry_are_widened_right() -> None:
    """A phone may choose its own shares of its samples; the dealt zeros make them anything."""
    one = Round(_WIDTHS, _good())
    one.samples[SP], one.samples[CSP] = [10, 11, 12, 13], [0, 0, 0, 0]
    (sp, _), (csp, _) = one.run()
    assert joined(sp.samples, csp.samples, _WIDTHS.R) == [10, 11, 12, 13]


def test_a_round_that_goes_on_gives_csps_word_to_sp() -> None:
    (sp, _), (csp, _) = Round(_WIDTHS, _good()).run(products=False)
    assert sp.attached == csp.attached == b"verdict None"


def _with_messages(one: Round, change: Callable[[int, bytes], bytes]) -> tuple[CspRun[Any], list[bytes]]:
    """CSP's half against an SP that alters its messages; the messages of CSP."""
    results: list[Any] = [None, None]
    csp, replies = CspRun(lambda side: one._ending(side, results, products=False)), []
    sp = one.program(SpSide(), products=False)
    message = next(sp)
    try:
        while not csp.is_over:
            replies.append(csp.answer(change(len(replies), message)))
            message = sp.send(replies[-1])
    except (StopIteration, RoundEnded, ValueError):  # an answer of another length, which a round's course refuses
        return csp, replies
    return csp, replies


def test_csp_cannot_copy_sps_commitment() -> None:
    one = Round(_WIDTHS, _good())
    sp, csp = one.program(SpSide(), products=False), CspRun(lambda side: one.program(side, products=False))
    message = next(sp)
    for _ in range(2):
        message = sp.send(csp.answer(message))
    shown = sp.send(message)  # the same commitment
    with pytest.raises(RoundEnded, match="committed"):
        sp.send(shown)


def test_lanes_made_unusable_end_the_round_before_anything_is_compared() -> None:
    one = Round(_WIDTHS, _good())

    def unusable(step: int, message: bytes) -> bytes:
        """SP knows CSP's answer already: it makes c = 0 for every lane of its first participant."""
        if step != 0:
            return b""
        words = lanes.covered(CspSide(), one.dealt[CSP], _WIDTHS, [0], one.lanes[CSP][:1].copy())
        forged = Ring(_WIDTHS.k).encode((np.uint64(0) - words).reshape(-1))
        return forged + message[len(forged) :]

    csp, replies = _with_messages(one, unusable)
    assert csp.is_over
    assert len(replies) == 2
    assert b"than chance explains" in replies[1]


@given(st.integers(0, 2**_WIDTHS.k - 1), st.integers(0, 2**_WIDTHS.k - 1))
@example(0, 2**_WIDTHS.k - 1)
@example(_WIDTHS.lane_bound, 2**_WIDTHS.k - 1)
@example(2**_WIDTHS.k - _WIDTHS.lane_bound, 0)
@example(_WIDTHS.lane_bound + 1, 2**_WIDTHS.k - 1)
@example(2 ** (_WIDTHS.k - 1), 2 ** (_WIDTHS.k - 1))
def test_an_opening_never_wraps_where_it_is_used(lane: int, mask: int) -> None:
    """What is shown less the mask is the lane if that is in range, and out of range if the lane is: over the integers."""
    modulus, bound = 1 << _WIDTHS.k, _WIDTHS.lane_bound
    covered = np.full((1, _WIDTHS.lanes), (lane + bound + mask) % modulus, dtype=np.uint64)
    shown = lanes.opened(_WIDTHS, [0], covered, np.zeros_like(covered))
    assert bool(shown.kept) == ((lane + bound + mask) % modulus >= 2 * bound)
    if shown.kept:
        found, signed = int(shown.shown[0, 0]) - mask, (lane + modulus // 2) % modulus - modulus // 2
        assert (found - lane) % modulus == 0
        assert found == signed if abs(signed) <= bound else abs(found) > bound


def test_blocks_with_an_unusable_lane_are_left_out_for_everyone() -> None:
    count = len(_WIDTHS.blocks)
    shares = np.full((2, _WIDTHS.lanes), 1 << (_WIDTHS.k - 1), dtype=np.uint64)
    shares[1, _WIDTHS.blocks[2][1] - 1] = 2 * _WIDTHS.lane_bound - 1
    shares[0, _WIDTHS.blocks[4][0]] = 2 * _WIDTHS.lane_bound
    shown = lanes.opened(_WIDTHS, [0, 5], shares, np.zeros_like(shares))
    assert shown.blocks.tolist() == [block for block in range(count) if block != 2]
    start, end = _WIDTHS.blocks[2]
    assert shown.places.tolist() == [*range(start), *range(end, _WIDTHS.lanes)]
    assert shown.shown.shape == (2, _WIDTHS.lanes - (end - start))


def test_masks_of_a_block_left_out_stay_closed() -> None:
    """Nothing that is sent after the opening, and no result, changes with the masks and products of such a block."""
    results = []
    for change in (0, 1):
        one = Round(_WIDTHS, _good(), seed=2)
        _make_unusable(one, _WIDTHS.blocks[1][0])
        one.dealt = *(_altered(own, change) for own in one.dealt[:2]), one.dealt[2]
        (sp, mine), (_, theirs) = one.run()
        assert 1 not in sp.lanes.blocks
        results.append([sp.lengths, mine, theirs, one.sent[SP][1:], one.sent[CSP][1:]])
    assert results[0] == results[1]


def _altered(own: DealtLanes, change: int) -> DealtLanes:
    """Other masks in block 1 but for their lowest bytes, which the opening itself uses, and other products of theirs."""

    def with_change(array: np.ndarray, places: slice) -> np.ndarray:
        other = array[:].copy()
        other[..., places, 8:] += np.uint8(change)
        return other

    block, one = slice(*_WIDTHS.blocks[1]), slice(1, 2)
    assert own.sums is not None
    sums = SumMasks(
        with_change(own.sums.mask, block), with_change(own.sums.with_lanes, one), with_change(own.sums.square, one)
    )
    return replace(own, lanes=with_change(own.lanes, block), squares=with_change(own.squares, one), sums=sums)


def _make_unusable(one: Round, place: int) -> None:
    """c = 0 there, for the first participant: by SP's share."""
    shares = [
        lanes.covered(side, one.dealt[side.index], _WIDTHS, [0], one.lanes[side.index][:1].copy())[0, place]
        for side in (SpSide(), CspSide())
    ]
    one.lanes[SP][0, place : place + 1] -= np.array([shares[SP]]) + shares[CSP]


def test_products_need_a_task_that_pays() -> None:
    unpaid = widths_of(budget=None)
    one = Round(unpaid, _good())
    (checked, _), _ = one.run(products=False)
    with pytest.raises(RewardsOff):
        next(lanes.products_program(SpSide(), one.dealt[SP], unpaid, checked.lanes))


def _chi_square(data: bytes) -> float:
    counts = np.bincount(np.frombuffer(data, dtype=np.uint8), minlength=256)
    expected = len(data) / 256
    return float(((counts - expected) ** 2 / expected).sum())


_INPUTS = {
    "nothing": lambda: [honest(_sparse(), 1) for _ in range(6)],
    "the bound": lambda: [honest(_sparse(_BOUND), 50) for _ in range(6)],
    "half the ring": lambda: [Upload(_half_ring(_D), 0) for _ in range(6)],
}


@pytest.mark.parametrize("inputs", list(_INPUTS))
@pytest.mark.parametrize("side", [SP, CSP])
def test_what_a_server_receives_is_uniform_whatever_the_inputs(inputs: str, side: int) -> None:
    """The bytes of the openings of lanes and samples, and of the masked comparisons: chi-square with 255 degrees of freedom."""
    first, second = b"", b""
    for seed in range(1, 4):
        one = Round(_WIDTHS, _INPUTS[inputs](), seed=seed)
        one.run()
        first += one.sent[1 - side][0]
        second += one.sent[1 - side][1]
    assert _chi_square(first) < 255 + 8 * (2 * 255) ** 0.5
    assert _chi_square(second) < 255 + 8 * (2 * 255) ** 0.5


@pytest.mark.parametrize("side", [SP, CSP])
def test_the_masked_sum_that_a_server_receives_is_uniform(side: int) -> None:
    for update in (_sparse(), _spread(_BOUND)):
        received = b""
        for seed in range(1, 4):
            one = Round(_WIDTHS, [honest(update, 50) for _ in range(6)], seed=seed)
            one.run()
            received += one.sent[1 - side][4][:-5]
        assert _chi_square(received) < 255 + 8 * (2 * 255) ** 0.5


@_few
@given(st.integers(-(2**20), 2**20), st.integers(0, _WIDTHS.lanes - 1), st.integers(1, 500))
def test_an_altered_opening_shifts_a_lane_by_what_was_added_and_no_more(shift: int, place: int, seed: int) -> None:
    """CSP, which hears SP's share of c first, may choose c: what is computed with then is the lane and a known number."""
    one = Round(_WIDTHS, _good(), seed=seed)
    one.lanes[CSP][1, place : place + 1] += np.array([shift], dtype=np.int64).view(np.uint64)
    (sp, _), (csp, _) = one.run(products=False)
    z = one.lanes_of(one.uploads[1].entries)
    z[place] += shift
    expected = sum(z[lane] ** 2 for lane in sp.lanes.places)
    allowed = len(sp.lanes.places) * _WIDTHS.K * 11**2 // _WIDTHS.buckets
    assert (1 in sp.verdict.accepted) == (expected <= allowed)
    if 1 in sp.verdict.accepted:
        at = sp.verdict.accepted.index(1)
        assert joined(sp.lengths, csp.lengths, _WIDTHS.R)[at] == expected


@pytest.mark.parametrize("parameters", [1, 2, 3])
def test_models_of_few_parameters_are_checked_too(parameters: int) -> None:
    widths = widths_of(parameters)
    fine, twice = np.zeros(parameters, dtype=np.int64), np.zeros(parameters, dtype=np.int64)
    fine[0], twice[0] = 2000, -4010
    wrapped = np.full(parameters, -(1 << (widths.k - 1)), dtype=np.int64)
    uploads = [*[honest(fine, 50)] * 4, honest(twice, 1), Upload(wrapped, 1)]
    (sp, _), (csp, _) = Round(widths, uploads).run()
    assert sp.verdict == csp.verdict == checks.CheckVerdict([0, 1, 2, 3])


@pytest.mark.second
def test_a_round_of_the_papers_size_is_exact() -> None:
    sizes = {"decimals": 6, "clip": 16.0, "max_participants": 36, "max_samples": 100, "lanes": 4096, "max_norm": 20.0}
    widths = widths_of(277_006, **sizes)
    draws = np.random.default_rng(5).normal(0, 0.9 * 20e6 / 277_006**0.5, (36, 277_006)).astype(np.int64)
    sparse = np.zeros(277_006, dtype=np.int64)
    sparse[1234] = 20_000_000
    uploads = [honest(draw, 100) for draw in [sparse, *draws[1:33]]]
    cheats = [Upload(np.full(277_006, -(1 << 55), dtype=np.int64), 3), honest(2 * sparse, 100), honest(draws[35], 0)]
    one = Round(widths, [*uploads, *cheats], seed=9)
    (sp, mine), (csp, theirs) = one.run()
    assert sp.verdict == csp.verdict == checks.CheckVerdict(list(range(33)))
    z = np.array([one.lanes_of(upload.entries) for upload in uploads], dtype=object)[:, sp.lanes.places]
    total = z.sum(axis=0)
    assert joined(sp.lengths, csp.lengths, widths.R) == [int(row @ row) for row in z]
    assert joined(mine.with_sum, theirs.with_sum, widths.R) == [int(row @ total) for row in z]
    assert joined([mine.sum_square], [theirs.sum_square], widths.R) == [int(total @ total)]
