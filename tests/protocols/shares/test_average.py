"""The average of a `shares` task against whole numbers, for everyone who reads it, round after round."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crowdfl.errors import (
    ChainBroken,
    NotFinite,
    NothingToAverage,
    NothingToContribute,
    NotReady,
    RewardsOff,
    RoundsExhausted,
    SealBroken,
    SlotOverflow,
    TooFewParticipants,
)
from crowdfl.protocols.shares.chain import ModelChain, rounded_quotient
from crowdfl.protocols.shares.round.upload import integers_within
from crowdfl.reasons import Reason
from tests.protocols.shares.parties import (
    COUNTED_ONCE,
    PAYING,
    UNCHECKED,
    Parties,
    expected,
    in_units,
    initial_units,
    name_of,
)

KINDS = {
    "no checks": UNCHECKED,
    "checks": {},
    "rewards": PAYING,
    "counted once, no checks": COUNTED_ONCE | UNCHECKED,
    "counted once": COUNTED_ONCE | PAYING,
}
every_kind = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS.keys())


@every_kind
def test_averages_are_exact_round_after_round(kind):
    """Every reader holds the same integers, and they are those of FedAvg rounded once."""
    parties, base = Parties(settings=kind), None
    for number in (1, 2, 3):
        base = base or initial_units(parties)
        models, samples = parties.models(number), parties.samples()
        played = parties.play(number, parties.encrypt(number, models, samples))
        average = parties.read(number, played)
        assert in_units(parties, average) == expected(parties, base, models, samples)
        assert average.total == (sum(samples.values()) if parties.shape.widths.has_counts else None)
        base = in_units(parties, average)


@every_kind
def test_who_drops_out_costs_nothing(kind):
    """Three of five upload; the others read all the same, and are told that nothing of theirs is in."""
    parties = Parties(settings=kind)
    models = dict(list(parties.models().items())[:3])
    played = parties.play(1, parties.encrypt(1, models))
    average = parties.requester.read(played.publication, 1)
    assert in_units(parties, average) == expected(parties, initial_units(parties), models, parties.samples())
    assert parties.people[name_of(0)].read(played.publication, 1).standing is None
    assert parties.people[name_of(4)].read(played.publication, 1).standing is Reason.NOT_PASSED_ON


def test_an_update_beyond_the_norm_bound_is_scaled_down_by_its_phone():
    """And the phone says so; the direction stays."""
    parties = Parties(settings=UNCHECKED)
    models = dict.fromkeys(parties.names, parties.initial + 1.9)
    uploads = parties.encrypt(1, models)
    average = parties.read(1, parties.play(1, uploads))
    assert parties.people[name_of(0)].scaled == pytest.approx(3.0 / (1.9 * 8**0.5))
    assert np.linalg.norm(average.weights - parties.initial) == pytest.approx(3.0, abs=0.01)


def clear_mean(parties, base, changes, most):
    """Everyone's update in whole units, shrunk until it is no longer than `most`; their mean, rounded once."""
    rows = []
    for change in changes:
        units, factor, least = [float(x) for x in change], 1.0, 0.25 / most
        row = [round(x) for x in units]
        while (square := sum(x * x for x in row)) > most**2:
            factor, least = factor * max(0.0, min(most / square**0.5, 1 - least)), 2 * least
            row = [round(x * factor) for x in units]
        rows.append(row)
    assert all(sum(x * x for x in row) <= most**2 for row in rows)
    return [
        b + round(Fraction(sum(column), len(rows))) for b, column in zip(base, zip(*rows, strict=True), strict=True)
    ]


@pytest.mark.parametrize("decimals", [1, 3])
def test_where_everyone_counts_once_the_average_is_the_mean_of_what_is_within_the_bound(decimals):
    """To the last integer, whatever anyone declares; and no phone that is too long is rejected for it."""
    parties = Parties(settings=COUNTED_ONCE | {"decimals": decimals, "max_norm": 0.7})
    unit, base = 10**decimals, initial_units(parties)
    rng = np.random.default_rng(5)
    changes = {who: rng.normal(size=8) * 0.4 for who in parties.names}
    models = {who: np.array(base) / unit + change for who, change in changes.items()}
    declared = {who: 10**i for i, who in enumerate(parties.names)}  # more than `max_samples` too
    played = parties.play(1, parties.encrypt(1, models, declared))
    assert played.rejected == {}
    lengths = {who: float(np.linalg.norm(change)) for who, change in changes.items()}
    assert max(lengths.values()) > 0.7
    kept = [changes[who] * min(1.0, 0.7 / lengths[who]) * unit for who in parties.names]
    assert in_units(parties, parties.read(1, played)) == clear_mean(parties, base, kept, math.ceil(0.7 * unit))


@given(
    st.lists(st.floats(-3e3, 3e3), min_size=1, max_size=40),
    st.integers(1, 4000),
)
def test_integers_are_never_longer_than_their_bound_and_nearly_as_long_as_they_may_be(change, most):
    whole = integers_within(np.array(change), most)
    length, wanted = float(np.linalg.norm(whole)), float(np.linalg.norm(change))
    assert sum(int(x) ** 2 for x in whole) <= most**2
    if wanted + len(change) ** 0.5 / 2 <= most:
        assert np.array_equal(whole, np.rint(change))
    assert length >= min(wanted, most) - 3 * len(change) ** 0.5


def test_an_update_of_many_small_weights_and_one_of_the_largest_fit_their_bound():
    even, single = np.full(277_006, 0.5001), np.array([2.0**52, 0.4])
    assert np.sum(integers_within(even, 300) ** 2) <= 300**2
    assert int(integers_within(single, 2**40 + 1)[0]) <= 2**40 + 1


def test_what_is_clipped_is_counted():
    parties = Parties(settings=UNCHECKED | {"max_norm": None})
    person = parties.people[name_of(0)]
    person.encrypt_update(parties.initial + np.array([5.0, -5.0, *[0.0] * 6]), 3, 1)
    assert (person.clipped, person.scaled) == (2, None)


@pytest.mark.parametrize(
    ("model", "samples", "refusal"),
    [
        (np.full(8, np.nan), 1, NotFinite),
        (np.full(8, np.inf), 1, NotFinite),
        (np.zeros(8), 0, NothingToContribute),
        (np.zeros(8), 11, SlotOverflow),
        (np.zeros(8), -1, SlotOverflow),
    ],
)
def test_a_phone_refuses_what_cannot_be_averaged(model, samples, refusal):
    with pytest.raises(refusal):
        Parties().people[name_of(0)].encrypt_update(model, samples, 1)


def test_a_phone_that_missed_an_average_cannot_skip_it():
    parties = Parties(settings=UNCHECKED)
    first = parties.play(1, parties.encrypt(1, parties.models()))
    late = parties.fresh_person(name_of(0))
    parties.read(1, first)
    second = parties.play(2, parties.encrypt(2, parties.models(2)))
    with pytest.raises(ChainBroken):
        late.read(second.publication, 2)
    late.read(first.publication, 1)
    assert np.array_equal(late.read(second.publication, 2).weights, parties.read(2, second).weights)


def test_what_is_kept_of_the_chain_is_all_a_reader_needs():
    parties = Parties(settings=UNCHECKED)
    parties.read(1, parties.play(1, parties.encrypt(1, parties.models())))
    again = parties.fresh_person(name_of(1))
    again.resume(parties.people[name_of(0)].chain(), parties.initial)
    played = parties.play(2, parties.encrypt(2, parties.models(2)))
    assert np.array_equal(again.read(played.publication, 2).weights, parties.read(2, played).weights)


def test_a_reader_that_follows_nothing_reads_nothing():
    parties = Parties(settings=UNCHECKED)
    person = type(parties.people[name_of(0)])(
        parties.requester.party, parties.shape, parties.people[name_of(0)].bundle, parties.keys[name_of(0)]
    )
    assert person.chain() is None
    with pytest.raises(NotReady):
        person.encrypt_update(parties.initial, 1, 1)


def test_the_last_average_is_the_requesters_alone():
    parties = Parties(settings=UNCHECKED | {"rounds": 1})
    played = parties.play(1, parties.encrypt(1, parties.models()))
    with pytest.raises(SealBroken):
        parties.people[name_of(0)].read(played.publication, 1)
    assert parties.requester.read(played.publication, 1).total == sum(parties.samples().values())


def test_the_same_publication_is_read_once():
    parties = Parties(settings=UNCHECKED)
    played = parties.play(1, parties.encrypt(1, parties.models()))
    parties.read(1, played)
    with pytest.raises(ChainBroken):
        parties.requester.read(played.publication, 1)


def test_too_few_uploads_are_not_averaged():
    parties = Parties(settings=UNCHECKED)
    two = dict(list(parties.models().items())[:2])
    with pytest.raises(TooFewParticipants):
        parties.play(1, parties.encrypt(1, two))


@pytest.mark.parametrize("samples", [0, 11], ids=["none", "more than anyone may have"])
def test_no_reader_takes_an_average_of_samples_that_honest_people_cannot_have(samples):
    """In a task without checks a phone that somebody has altered says any number; here all of them do."""
    parties = Parties(settings=UNCHECKED)
    uploads = {who: parties.crafted(1, who, [1] * 8, samples).to_bytes() for who in parties.names}
    played = parties.play(1, uploads)
    for reader in (parties.requester, parties.people[name_of(0)]):
        before = reader.chain()
        with pytest.raises(NothingToAverage):
            reader.read(played.publication, 1)
        assert reader.chain() == before


def test_there_are_no_more_rounds_than_were_dealt_for():
    parties = Parties(settings=UNCHECKED)
    with pytest.raises(RoundsExhausted):
        parties.new_sp(7)


def test_a_task_without_rewards_says_so():
    parties = Parties(settings=UNCHECKED)
    sp = parties.new_sp(1)
    with pytest.raises(RewardsOff):
        next(sp.reward(1))
    with pytest.raises(RewardsOff):
        parties.people[name_of(0)].claim()


def test_uploads_have_the_size_that_was_announced():
    parties = Parties(settings=UNCHECKED)
    uploads = parties.encrypt(1, parties.models())
    assert {len(upload) for upload in uploads.values()} == {parties.new_sp(1).upload_bytes()}


@settings(deadline=None)
@given(st.lists(st.integers(-(2**62), 2**62), min_size=1), st.integers(1, 10**9))
def test_quotients_are_rounded_to_the_nearest_even(sums, total):
    rounded = rounded_quotient(np.array(sums, dtype=np.int64), total)
    assert rounded.tolist() == [round(Fraction(x, total)) for x in sums]


@settings(deadline=None)
@given(
    st.lists(st.integers(-(2**61), 2**61), min_size=1), st.integers(0, 2**32 - 1), st.binary(min_size=32, max_size=32)
)
def test_a_chain_survives_its_bytes(weights, number, base):
    chain = ModelChain(number, base, np.array(weights, dtype=np.int64))
    again = ModelChain.from_bytes(chain.to_bytes(), len(weights))
    assert (again.number, again.base, again.weights.tolist()) == (number, base, weights)
