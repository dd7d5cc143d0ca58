"""The average of a `shares` task against whole numbers, for everyone who reads it, round after round."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crowdfl.errors import (
    ChainBroken,
    NotFinite,
    NothingToContribute,
    NotReady,
    RewardsOff,
    RoundsExhausted,
    SealBroken,
    SlotOverflow,
    TooFewParticipants,
)
from crowdfl.protocols.shares.chain import ModelChain, rounded_quotient
from tests.protocols.shares.parties import (
    PAYING,
    UNCHECKED,
    Parties,
    expected,
    in_units,
    initial_units,
    name_of,
)

KINDS = {"no checks": UNCHECKED, "checks": {}, "rewards": PAYING}
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
        assert average.total == sum(samples.values())
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
    assert "not passed on" in parties.people[name_of(4)].read(played.publication, 1).standing


def test_an_update_beyond_the_norm_bound_is_scaled_down_by_its_phone():
    """And the phone says so; the direction stays."""
    parties = Parties(settings=UNCHECKED)
    models = dict.fromkeys(parties.names, parties.initial + 1.9)
    uploads = parties.encrypt(1, models)
    average = parties.read(1, parties.play(1, uploads))
    assert parties.people[name_of(0)].scaled == pytest.approx(3.0 / (1.9 * 8**0.5))
    assert np.linalg.norm(average.weights - parties.initial) == pytest.approx(3.0, abs=0.01)


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
    late = parties.new_person(name_of(0))
    parties.read(1, first)
    second = parties.play(2, parties.encrypt(2, parties.models(2)))
    with pytest.raises(ChainBroken):
        late.read(second.publication, 2)
    late.read(first.publication, 1)
    assert np.array_equal(late.read(second.publication, 2).weights, parties.read(2, second).weights)


def test_what_is_kept_of_the_chain_is_all_a_reader_needs():
    parties = Parties(settings=UNCHECKED)
    parties.read(1, parties.play(1, parties.encrypt(1, parties.models())))
    again = parties.new_person(name_of(1))
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
