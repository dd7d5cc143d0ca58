"""Differential privacy of a `shares` task: both servers' noise, drawn once for each sum, and what the settings ask for."""

import math

import numpy as np
import pytest

from crowdfl.crypto.shares.noise import discrete_gaussian
from crowdfl.errors import SeedReused, SettingsError
from crowdfl.protocols.registry import profile_named
from crowdfl.protocols.shares.round.average import CSP, SP, MaskedPart, ShareSum
from crowdfl.protocols.shares.round.manifest import AcceptedSet
from crowdfl.protocols.shares.widths import SharesWidths
from crowdfl.settings import TaskSettings
from tests.protocols.shares.parties import NOISY, PAYING, UNCHECKED, Parties, in_units, initial_units, integers_of

KINDS = {"no checks": NOISY | UNCHECKED, "checks and pay": NOISY | PAYING | {"lanes": 1024}}
every_kind = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS.keys())
PRIVATE = {"weighting": "equal", "max_norm": 10.0, "epsilon": 8.0, "rounds": 20, "max_participants": 1000}


@pytest.fixture(autouse=True)
def parts(monkeypatch):
    """What both servers draw for a round's sum, by round and server."""
    drawn, kept = MaskedPart.drawn, {}

    def draw(members, shape, place, server, audiences):
        kept.setdefault(place.number, {})[server] = made = drawn(members, shape, place, server, audiences)
        return made

    monkeypatch.setattr(MaskedPart, "drawn", staticmethod(draw))
    return kept


@every_kind
def test_an_average_is_the_exact_one_and_both_servers_noise_on_the_sum(kind, parts):
    """By a plaintext oracle, from the seeds that the servers keep to themselves; round after round."""
    parties, base = Parties(settings=kind), None
    for number in (1, 2):
        base = base or initial_units(parties)
        place, start = parties.place(number), np.array(base) / parties.shape.widths.unit
        models = {who: start + model - parties.initial for who, model in parties.models(number).items()}
        played = parties.play(number, parties.encrypt(number, models))
        sums = np.sum([integers_of(parties, base, model) for model in models.values()], axis=0)
        sigma = parties.spec.settings.sigma
        drawn = [
            discrete_gaussian(part.noise, place.bind("crowdfl noise 1"), sigma, parties.parameters)
            for part in parts[number].values()
        ]
        assert not np.array_equal(*drawn)
        average = in_units(parties, parties.read(number, played))
        assert average == [b + round(s / len(models)) for b, s in zip(base, sums + drawn[0] + drawn[1], strict=True)]
        base = average


def test_no_reader_can_take_noise_off_with_what_it_gets(parts):
    """The seed of a mask is sealed to readers; that of the noise is another one, and is in nothing that leaves a server."""
    parties = Parties(settings=NOISY | UNCHECKED)
    uploads = parties.encrypt(1, parties.models())
    played = parties.play(1, uploads)
    sent = [played.publication, *parties.asked, *uploads.values()]
    for part in parts[1].values():
        assert part.t != part.noise
        assert not any(part.noise in message for message in sent)


def test_noise_never_serves_the_sum_of_other_people():
    parties = Parties(settings=NOISY | UNCHECKED)
    place, everyone = parties.place(1), AcceptedSet(tuple(parties.names), {})
    audiences = dict.fromkeys(("participants", "requester"), parties.people[parties.names[0]].bundle.csp_sealing)
    part = MaskedPart.drawn(everyone, parties.shape, place, SP, audiences)
    own = ShareSum(bytes(parties.shape.share_bytes), 0)
    assert part.masked(parties.shape, place, everyone, own) == part.masked(parties.shape, place, everyone, own)
    others = (
        AcceptedSet(everyone.accepted[1:]),
        AcceptedSet(everyone.accepted, verdicts=b"of other uploads of theirs"),
    )
    for members in others:
        with pytest.raises(SeedReused):
            part.masked(parties.shape, place, members, own)


def test_csp_keeps_nothing_that_noise_could_be_taken_off_with(parts):
    """Neither in its records nor in the files that they name, once a sum is opened."""
    parties = Parties(settings=NOISY | UNCHECKED)
    for number in (1, 2):
        parties.read(number, parties.play(number, parties.encrypt(number, parties.models(number))))
        kept = parties.csp.records
        left = [standing.body or b"" for standing in kept.records.values()]
        for secret in (parts[number][CSP].t, parts[number][CSP].noise, parties.coins[number]):
            assert not [body for body in left if secret in body]


def test_noise_follows_from_epsilon_and_less_of_it_is_refused():
    made = TaskSettings(**PRIVATE)
    assert made.decimals == 3  # the most with which the longest update has at most 2^16 units
    assert made.length_units == 10_000
    assert made.noise_ratio == pytest.approx(2.863, abs=0.001)
    assert TaskSettings(**made.model_dump()) == made
    with pytest.raises(SettingsError, match="too little for epsilon"):
        TaskSettings(**{**made.model_dump(), "sigma": made.sigma - 30})
    with pytest.raises(SettingsError, match="too little for epsilon"):
        TaskSettings(**{**made.model_dump(), "rounds": 21})


def test_what_opened_rounds_have_spent_grows_to_epsilon():
    made = TaskSettings(**PRIVATE)
    spent = [made.epsilon_spent(opened) for opened in range(21)]
    assert spent == sorted(spent)
    assert spent[0] == 0
    assert spent[20] == pytest.approx(8, abs=0.001)
    assert spent[20] <= 8
    assert TaskSettings(max_norm=10.0).epsilon_spent(5) == 0


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"weighting": "samples"}, "needs weighting"),
        ({"max_norm": None}, "needs weighting"),
        ({"decimals": 6}, "leave `decimals` out"),
        ({"epsilon": 0.0001, "rounds": 10_000}, "more noise than numbers here hold"),
        ({"epsilon": None, "delta": 1e-6}, "no effect without `epsilon`"),
        ({"epsilon": None, "noise": "any"}, "no effect without `epsilon`"),
    ],
)
def test_settings_that_cannot_keep_epsilon_are_refused(changes, words):
    with pytest.raises(SettingsError, match=words):
        TaskSettings(**PRIVATE | changes)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"lanes": 512}, "at least 1024 `lanes`"),
        ({"max_participants": 40}, "noise of length"),
        ({"profile": "hardened", "weighting": "equal"}, "epsilon"),
        ({"profile": "paper", "weighting": "equal"}, "epsilon"),
    ],
)
def test_tasks_that_cannot_keep_epsilon_are_refused(changes, words):
    made = TaskSettings(**PRIVATE | changes)
    with pytest.raises(SettingsError, match=words):
        profile_named(made.profile).check(made, 1000)


def test_a_small_crowd_is_taken_where_its_settings_say_so():
    made = TaskSettings(**PRIVATE | {"max_participants": 40, "noise": "any"})
    profile_named("shares").check(made, 1000)
    explained = profile_named("shares").explain(made, 1000)
    assert "epsilon 8.0, delta 1e-05 for each person, over 20 rounds" in explained
    noise = math.sqrt(2) * 2.863 * 10 * math.sqrt(1000) / 40
    assert f"to {noise:.3g} on an average of 3 to 40 people" in explained


def test_a_round_is_wide_enough_for_the_tails_of_the_noise():
    """Beyond the bound an entry's noise lies with a chance below 2^-40, of all entries, rounds and servers together."""
    bare_settings = PRIVATE | UNCHECKED | {"epsilon": None, "decimals": 3}
    made, without = TaskSettings(**PRIVATE | UNCHECKED), TaskSettings(**bare_settings)
    widths, bare = SharesWidths.of(made, 1000), SharesWidths.of(without, 1000)
    assert widths.sum_bound == bare.sum_bound + widths.noise_bound
    far = widths.noise_bound / 2 / made.sigma
    assert 2 * 2 * 1000 * made.rounds * math.exp(-far * far / 2) < 2.0**-40
    assert far < 12  # and not much further


def test_honest_uploads_are_rejected_as_rarely_as_delta_allows():
    made = TaskSettings(**PRIVATE | {"delta": 1e-7})
    widths = SharesWidths.of(made, 1000)
    assert widths.sparse_rejection <= 1e-7 / (10 * made.rounds)
    assert widths.false_rejection <= 1e-7 / (10 * made.rounds)
