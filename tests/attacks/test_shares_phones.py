"""Phones of a `shares` task that somebody has altered: left out alone and told why, and nobody else notices.

The task is wide enough that no shape tried here passes with a chance above 2^-30. What is computed about chances is compared
with many sketches, whose coins are fixed.
"""

import math
from dataclasses import replace

import numpy as np
import pytest

from crowdfl.crypto.sealing import ReaderKey
from crowdfl.crypto.shares.sketch import Sketch
from crowdfl.errors import RoundEnded, UploadRejected
from crowdfl.protocols.shares.round.upload import UploadBody
from crowdfl.protocols.shares.shape import SharesShape
from crowdfl.protocols.shares.widths import SharesWidths, added, pair, triple
from crowdfl.reasons import Reason
from crowdfl.settings import TaskSettings
from tests.protocols.shares.parties import (
    HIDDEN,
    PAYING,
    PAYMENT,
    UNCHECKED,
    Parties,
    expected,
    in_units,
    initial_units,
    name_of,
)

CHEATER = name_of(2)
SIZE = 40
TASK = HIDDEN | {"lanes": 512, "max_norm": 3.0, "clip": 3.0}


def task():
    return Parties(parameters=SIZE, settings=TASK)


def sparse(*entries):
    return np.array([*entries, *[0] * (SIZE - len(entries))], dtype=np.int64)


def spread(length):
    """Of this length, the same in every entry; rounded down."""
    return np.full(SIZE, int(length / SIZE**0.5), dtype=np.int64)


def half(k):
    return 1 << (k - 1)


def ring(parties):
    return parties.shape.widths.k


def bound(parties):
    """Of the length of an update of one sample, in units."""
    return 3.0 * parties.shape.widths.unit


COUNTS = {
    "no samples": lambda p: (sparse(), 0),
    "no samples and an update": lambda p: (spread(100), 0),
    "minus one sample": lambda p: (-spread(1000), -1),
    "samples far below zero": lambda p: (spread(1000), -(2**126)),
    "one sample too many": lambda p: (spread(1000) * 11, 11),
    "as many samples as the ring has": lambda p: (spread(1000), 2**127),
}
LENGTHS = {
    "twice the bound in one entry": lambda p: (sparse(int(2 * bound(p))) * 10, 10),
    "twice the bound in two entries": lambda p: (sparse(*[int(2**0.5 * bound(p))] * 2) * 10, 10),
    "twice the bound in five entries": lambda p: (sparse(*[int(2 * bound(p) / 5**0.5)] * 5), 1),
    "twice the bound, spread out": lambda p: (spread(2 * bound(p)) * 10, 10),
    "half spread out, half in one entry": lambda p: (spread(1.5 * bound(p)) + sparse(int(1.5 * bound(p))), 1),
    "a hundred times the bound": lambda p: (spread(100 * bound(p)) * 3, 3),
    "ten samples' update for one": lambda p: (spread(bound(p)) * 10, 1),
}
WRAPS = {
    "all entries half the ring": lambda p: (np.full(SIZE, half(ring(p))), 10),
    "one entry half the ring": lambda p: (sparse(half(ring(p))), 10),
    "two entries that cancel": lambda p: (sparse(half(ring(p)), -half(ring(p))), 10),
    "entries that add up to the ring": lambda p: (sparse(*[half(ring(p)) // 2] * 4), 10),
    "all entries a quarter of the ring": lambda p: (np.full(SIZE, half(ring(p)) // 2), 10),
    "half the ring behind an honest update": lambda p: (spread(1000) * 5 + np.full(SIZE, half(ring(p))), 5),
    "a body of noise": lambda p: (np.random.default_rng(1).integers(-(2**62), 2**62, SIZE), 7),
}
CHEATS = COUNTS | LENGTHS | WRAPS


def without_cheater(parties):
    return {who: model for who, model in parties.models().items() if who != CHEATER}


def fair(parties):
    """Everyone else's reward: all are paid by their samples."""
    counts = {who: parties.samples()[who] for who in without_cheater(parties)}
    total = sum(counts.values())
    return {who: PAYMENT * count // total for who, count in counts.items()}


@pytest.fixture(scope="module")
def alone():
    """The average and the rewards of the same round without the cheater."""
    parties = task()
    played = parties.play(1, parties.encrypt(1, without_cheater(parties)))
    return parties.requester.read(played.publication, 1), parties.rewards(1, played)


@pytest.mark.parametrize("cheat", CHEATS.values(), ids=CHEATS.keys())
def test_an_upload_out_of_bounds_is_left_out_alone_and_told_why(alone, cheat):
    """For everyone else as if it had not been there: the same integers, and the same rewards."""
    parties = task()
    upload = parties.crafted(1, CHEATER, *cheat(parties)).to_bytes()
    played = parties.play(1, parties.encrypt(1, without_cheater(parties)) | {CHEATER: upload})
    average, (plain, fair_pay) = parties.requester.read(played.publication, 1), alone
    assert np.array_equal(average.weights, plain.weights)
    assert average.total == plain.total
    assert parties.rewards(1, played) == fair_pay == fair(parties)
    assert played.rejected == {CHEATER: Reason.OUT_OF_BOUNDS}
    assert parties.people[CHEATER].read(played.publication, 1).standing == Reason.OUT_OF_BOUNDS
    assert parties.people[name_of(0)].read(played.publication, 1).standing is None


@pytest.mark.parametrize("kind", [UNCHECKED, {}, HIDDEN, PAYING], ids=["no checks", "checks", "samples", "equal"])
def test_a_seal_that_does_not_open_is_left_out_alone_and_told_why(kind):
    parties = Parties(settings=kind)
    models = without_cheater(parties)
    broken = parties.crafted(1, CHEATER, np.zeros(8), 3, sealing=ReaderKey.fresh().public)
    played = parties.play(1, parties.encrypt(1, models) | {CHEATER: broken.to_bytes()})
    average = parties.requester.read(played.publication, 1)
    assert in_units(parties, average) == expected(parties, initial_units(parties), models, parties.samples())
    assert played.rejected == {CHEATER: Reason.BROKEN_SEAL}
    assert parties.people[CHEATER].read(played.publication, 1).standing == Reason.BROKEN_SEAL
    assert (CHEATER in played.envelopes) == (kind is PAYING)
    if kind is PAYING:  # CSP's record is everyone's envelope, and says the same
        with pytest.raises(UploadRejected, match=Reason.BROKEN_SEAL.words):
            parties.people[CHEATER].open_reward(played.envelopes[CHEATER], 1)


def test_a_copied_seal_is_its_owners_alone():
    """Another's shares and seal under one's own name: the seal is bound to the name."""
    parties = Parties()
    uploads = parties.encrypt(1, parties.models())
    theirs = UploadBody.from_bytes(uploads[name_of(0)], parties.shape.limits())
    copied = parties.signed(replace(theirs, who=CHEATER))
    played = parties.play(1, uploads | {CHEATER: copied.to_bytes()})
    assert played.rejected == {CHEATER: Reason.BROKEN_SEAL}


def test_a_third_may_cheat_and_one_more_voids_the_round():
    """Nothing is opened then: the same model can be trained on again."""
    parties = Parties(people_count=6)
    for number, cheaters in ((1, 3), (2, 2)):
        models = parties.models()
        uploads = parties.encrypt(number, models)
        for who in parties.names[:cheaters]:
            uploads[who] = parties.crafted(number, who, np.zeros(8), 99).to_bytes()
        if cheaters == 3:
            with pytest.raises(RoundEnded, match=Reason.TOO_MANY_LEFT_OUT.words):
                parties.play(number, uploads)
        else:
            played = parties.play(number, uploads)
            assert set(played.rejected) == set(parties.names[:2])
            assert parties.requester.read(played.publication, number).total == sum(
                parties.samples()[who] for who in parties.names[2:]
            )


def test_a_round_with_too_few_left_is_void():
    parties = Parties(people_count=4, settings={"min_participants": 4})
    uploads = parties.encrypt(1, parties.models())
    uploads[name_of(0)] = parties.crafted(1, name_of(0), np.zeros(8), 0).to_bytes()
    with pytest.raises(RoundEnded, match=Reason.TOO_FEW_LEFT.words):
        parties.play(1, uploads)


def test_too_many_broken_seals_void_a_round_without_checks_too():
    parties = Parties(settings=UNCHECKED)
    uploads = parties.encrypt(1, parties.models())
    for who in parties.names[:2]:
        uploads[who] = parties.crafted(1, who, np.zeros(8), 1, sealing=ReaderKey.fresh().public).to_bytes()
    with pytest.raises(RoundEnded, match=Reason.TOO_MANY_LEFT_OUT.words):
        parties.play(1, uploads)
    assert parties.play(2, parties.encrypt(2, parties.models())).rejected == {}


def test_two_that_cancel_each_other_are_both_left_out():
    """Their sum would be as small as anyone's: each is looked at alone."""
    parties = Parties(people_count=6, parameters=SIZE, settings=TASK)
    models, pair = parties.models(), (name_of(1), name_of(4))
    uploads = parties.encrypt(1, {who: model for who, model in models.items() if who not in pair})
    huge = np.full(SIZE, half(ring(parties)) // 3)
    for who, sign in zip(pair, (1, -1), strict=True):
        uploads[who] = parties.crafted(1, who, sign * huge + spread(100), 1).to_bytes()
    assert parties.play(1, uploads).rejected == dict.fromkeys(pair, Reason.OUT_OF_BOUNDS)


HONEST = {
    "the bound in one entry": lambda p: sparse(int(bound(p))),
    "the bound below zero": lambda p: sparse(-int(bound(p))),
    "two entries": lambda p: sparse(*[int(bound(p) * 2 / 3 / 2**0.5)] * 2),
    "three entries": lambda p: sparse(*[int(bound(p) * 2 / 3 / 3**0.5)] * 3),
    "spread out": lambda p: spread(bound(p) * 2 / 3),
}


def test_updates_of_every_shape_within_the_bound_are_accepted():
    """With the most samples and with one. Two thirds of the bound where entries can meet: for the bound itself, see below."""
    parties = task()
    shapes = dict(zip(parties.names, HONEST.values(), strict=True))
    counts = dict(zip(parties.names, (10, 1, 10, 1, 10), strict=True))
    uploads = {
        who: parties.crafted(1, who, shape(parties) * counts[who], counts[who]).to_bytes()
        for who, shape in shapes.items()
    }
    played = parties.play(1, uploads)
    assert played.rejected == {}
    assert parties.requester.read(played.publication, 1).total == sum(counts.values())


def widths_of(parameters, **settings):
    usual = {"profile": "shares", "decimals": 3, "clip": 2.0, "max_norm": 1.5, "max_participants": 5, "rounds": 3}
    return SharesWidths.of(TaskSettings.of(**usual | {"max_samples": 10, "lanes": 128} | settings), parameters)


TASKS = {
    "small": (8, {}),
    "small and wide": (40, {"lanes": 1024}),
    "that of the paper": (
        277_006,
        {"lanes": 4096, "decimals": 6, "max_participants": 36, "max_samples": 1000, "max_norm": 5.0},
    ),
}


@pytest.mark.parametrize(("parameters", "settings"), TASKS.values(), ids=TASKS.keys())
def test_an_honest_upload_at_the_bound_is_rejected_once_in_a_million_at_most(parameters, settings):
    """The tails, computed: an even update by the normal law, sparse ones by all ways to meet in a row."""
    widths = widths_of(parameters, **settings)
    assert widths.false_rejection <= 1e-6
    assert widths.wrap_chance <= 2.0**-40


def squares(widths, updates, runs):
    """Sketched squares of updates over their own, for so many sketches with fixed coins: [runs, updates]."""
    shape = (widths.parameters, widths.rows, widths.buckets)
    entries = np.array(updates, dtype=np.int64)
    own = (entries.astype(np.float64) ** 2).sum(axis=1)
    return np.array([_squared(Sketch(run.to_bytes(32, "big"), *shape), entries) / own for run in range(runs)])


def _squared(sketch, entries):
    lanes = sketch.lanes(entries.view(np.uint64)).view(np.int64).astype(np.float64)
    return (lanes**2).sum(axis=1)


@pytest.mark.second
def test_of_many_sketches_none_rejects_an_honest_update_at_the_bound():
    """20,000 sketches of one, two, three equal entries and of an even update; their coins are fixed, so that the result is."""
    widths = widths_of(8)
    shapes = [np.array([1] * count + [0] * (8 - count)) * widths.norm_bound / count**0.5 for count in (1, 2, 3, 8)]
    found = squares(widths, np.rint(shapes), 20_000)
    allowed = widths.lanes * widths.K / (widths.buckets * widths.norm_bound**2)
    assert found.max() > widths.rows  # some are above the truth, as estimates are
    assert found.max() * (1 + 1e-3) < allowed  # rounding moved no square by so much


@pytest.mark.second
def test_of_many_sketches_none_accepts_twice_the_bound():
    """However many entries share the length, from one to all. The printed chance is below 2^-16."""
    widths = widths_of(256)
    shapes = [np.array([1] * count + [0] * (256 - count)) * 1000 for count in (1, 2, 3, 4, 6, 8, 16, 64, 256)]
    assert 4 * squares(widths, shapes, 1_000).min() > (1 + float(widths.tau)) * widths.rows


@pytest.mark.second
def test_the_computed_tails_of_sparse_updates_are_those_of_sketches():
    """The distribution behind a tail, in sixths of the square: far from the tail, where it can be counted."""
    widths, runs = widths_of(8), 8_000
    shapes = [np.array([1] * count + [0] * (8 - count)) * 1000 for count in (2, 3)]
    found = np.rint(6 * (squares(widths, shapes, runs) - widths.rows))
    for column, law in enumerate((pair, triple)):
        expected = {0: 1}
        for _ in range(widths.rows):
            expected = added(expected, law(widths.buckets))
        for limit in (0, 3, 6, 12):
            chance = sum(p for excess, p in expected.items() if excess > limit) / sum(expected.values())
            deviation = math.sqrt(chance * (1 - chance) / runs)
            assert abs(np.count_nonzero(found[:, column] > limit) / runs - chance) < 5 * deviation + 1 / runs


def test_the_task_of_these_tests_leaves_no_room_for_chance():
    """Two large entries pass if most rows hide them, spread ones if their estimate is ten standard deviations off."""
    widths = SharesShape(task().spec).widths
    hidden = math.ceil(widths.rows * (1 - (1 + float(widths.tau)) / 4))
    row = 1 / (2 * widths.buckets) + widths.drop_chance
    assert sum(math.comb(widths.rows, j) * row**j for j in range(hidden, widths.rows + 1)) < 2.0**-30
    assert (4 - 1 - float(widths.tau)) / (4 * math.sqrt(2 / widths.lanes)) > 9.9
