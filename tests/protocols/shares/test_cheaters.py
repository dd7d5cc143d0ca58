"""A cheating phone is left out alone, with a reason; for everyone else it is as if it had not been there."""

import numpy as np
import pytest

from crowdfl.crypto.sealing import ReaderKey
from crowdfl.errors import RoundEnded
from crowdfl.protocols.exchange import run_exchange
from crowdfl.protocols.shares.round.manifest import BROKEN_SEAL, OUT_OF_BOUNDS
from crowdfl.protocols.shares.round.upload import UploadBody
from tests.protocols.shares.parties import (
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


def update_of(parties, per_sample, samples):
    return np.asarray(per_sample, dtype=np.int64) * samples


def ones(parties, value):
    return np.full(parties.parameters, value, dtype=np.int64)


def sparse(parties, value):
    update = np.zeros(parties.parameters, dtype=np.int64)
    update[3] = value
    return update


def noise(parties):
    return np.random.default_rng(1).integers(-(2**62), 2**62, parties.parameters)


def half_ring(parties):
    return ones(parties, 1 << (parties.shape.widths.k - 1))


CHEATS = {
    "no samples": lambda p: (ones(p, 0), 0),
    "no samples, with an update": lambda p: (ones(p, 5), 0),
    "negative samples": lambda p: (ones(p, 5), -3),
    "too many samples": lambda p: (ones(p, 11 * 5), 11),
    "very many samples": lambda p: (ones(p, 5), 2**100),
    "half of all samples there are": lambda p: (ones(p, 5), 2**127),
    "ten times the norm, spread out": lambda p: (ones(p, 10 * int(10 * 3000 / p.parameters**0.5)), 10),
    "ten times the norm, in one entry": lambda p: (sparse(p, 10 * 30_000), 10),
    "entries of half the ring": lambda p: (half_ring(p), 1),
    "one entry of half the ring": lambda p: (sparse(p, 1 << (p.shape.widths.k - 1)), 1),
    "alternating entries of half the ring": lambda p: (half_ring(p) * np.array([1, -1] * (p.parameters // 2)), 1),
    "a body of noise": lambda p: (noise(p), 7),
}


@pytest.mark.parametrize("cheat", CHEATS.values(), ids=CHEATS.keys())
def test_an_upload_out_of_bounds_is_left_out_alone(cheat):
    """Average and rewards are those of the same round without it."""
    parties, alone = Parties(settings=PAYING), Parties(settings=PAYING)
    models = {who: model for who, model in parties.models().items() if who != CHEATER}
    uploads = parties.encrypt(1, models) | {CHEATER: parties.crafted(1, CHEATER, *cheat(parties)).to_bytes()}
    played, without = parties.play(1, uploads), alone.play(1, alone.encrypt(1, models))
    average = parties.requester.read(played.publication, 1)
    assert in_units(parties, average) == expected(parties, initial_units(parties), models, parties.samples())
    assert played.rejected == {CHEATER: OUT_OF_BOUNDS}
    assert parties.people[CHEATER].read(played.publication, 1).standing == OUT_OF_BOUNDS
    paid, fair = parties.rewards(1, played), alone.rewards(1, without)
    assert paid.keys() == fair.keys()
    assert all(abs(paid[who] - fair[who]) <= 2 for who in paid)  # rounding of shares: 1 millionth, up or down


def test_an_honest_upload_at_every_bound_is_accepted():
    """The norm bound, in one entry and in two; half of it spread out, where the sketch is not exact; one sample, and ten."""
    parties = Parties(settings={"clip": 3.0})
    shapes = [sparse(parties, 3000), ones(parties, int(1500 / parties.parameters**0.5)), sparse(parties, -3000)]
    shapes += [np.array([2121, 2121, *[0] * 6]), ones(parties, 0)]
    counts = dict(zip(parties.names, (10, 10, 1, 10, 1), strict=True))
    uploads = {
        who: parties.crafted(1, who, update_of(parties, shape, counts[who]), counts[who]).to_bytes()
        for who, shape in zip(parties.names, shapes, strict=True)
    }
    played = parties.play(1, uploads)
    assert played.rejected == {}
    assert parties.read(1, played).total == sum(counts.values())


@pytest.mark.parametrize("kind", [UNCHECKED, {}, PAYING], ids=["no checks", "checks", "rewards"])
def test_a_seal_that_does_not_open_is_left_out_alone(kind):
    parties = Parties(settings=kind)
    models = {who: model for who, model in parties.models().items() if who != CHEATER}
    broken = parties.crafted(1, CHEATER, np.zeros(8), 3, sealing=ReaderKey.fresh().public)
    played = parties.play(1, parties.encrypt(1, models) | {CHEATER: broken.to_bytes()})
    average = parties.requester.read(played.publication, 1)
    assert in_units(parties, average) == expected(parties, initial_units(parties), models, parties.samples())
    assert played.rejected == {CHEATER: BROKEN_SEAL}
    assert parties.people[CHEATER].read(played.publication, 1).standing == BROKEN_SEAL
    assert CHEATER not in played.envelopes


def test_a_copied_seal_is_its_owners_alone():
    """Another's shares and seal under one's own name: the seal is bound to the name."""
    parties = Parties()
    uploads = parties.encrypt(1, parties.models())
    theirs = UploadBody.from_bytes(uploads[name_of(0)], parties.shape.limits())
    own = parties.crafted(1, CHEATER, np.zeros(8), 3)
    copied = parties.signed(
        UploadBody(
            own.task, own.number, own.base, CHEATER, theirs.digest, theirs.sealed, b"", theirs.samples, theirs.shares
        )
    )
    played = parties.play(1, uploads | {CHEATER: copied.to_bytes()})
    assert played.rejected == {CHEATER: BROKEN_SEAL}


def test_a_third_may_cheat_and_one_more_voids_the_round():
    """Nothing is opened then: the same model can be trained on again."""
    parties = Parties(people_count=6)
    for number, cheaters in ((1, 3), (2, 2)):
        models = parties.models()
        uploads = parties.encrypt(number, models)
        for who in parties.names[:cheaters]:
            uploads[who] = parties.crafted(number, who, ones(parties, 0), 99).to_bytes()
        if cheaters == 3:
            with pytest.raises(RoundEnded, match="more than a third"):
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
    uploads[name_of(0)] = parties.crafted(1, name_of(0), ones(parties, 0), 0).to_bytes()
    with pytest.raises(RoundEnded, match="within the bounds"):
        parties.play(1, uploads)


def test_too_many_broken_seals_void_a_round_without_checks_too():
    parties = Parties(settings=UNCHECKED)
    uploads = parties.encrypt(1, parties.models())
    for who in parties.names[:2]:
        uploads[who] = parties.crafted(1, who, ones(parties, 0), 1, sealing=ReaderKey.fresh().public).to_bytes()
    with pytest.raises(RoundEnded, match="more than a third"):
        parties.play(1, uploads)
    assert parties.play(2, parties.encrypt(2, parties.models())).rejected == {}


def test_sp_knows_who_was_rejected_when_the_rewards_are_done():
    parties = Parties(settings=PAYING)
    uploads = parties.encrypt(1, parties.models()) | {
        CHEATER: parties.crafted(1, CHEATER, ones(parties, 0), 0).to_bytes()
    }
    sp = parties.new_sp(1)
    sp.add_all(uploads)
    assert sp.rejected() == {}
    run_exchange(sp.reward(PAYMENT), parties.ask)
    assert sp.rejected() == {CHEATER: OUT_OF_BOUNDS}
