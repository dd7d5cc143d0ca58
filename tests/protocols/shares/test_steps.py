"""Server steps of a `shares` task: the same bits for every reader, by an oracle written here, and what must be refused."""

import hashlib
import struct
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crowdfl.errors import ChainBroken, FormatError, SettingsError, SlotOverflow
from crowdfl.learning.server_steps import PlainStep
from crowdfl.protocols.registry import profile_named
from crowdfl.protocols.shares.chain import ModelChain
from crowdfl.protocols.shares.round.average import SharesPublication
from crowdfl.protocols.shares.server_optimizers import ServerStep
from crowdfl.settings import TaskSettings
from tests.protocols.shares.parties import PAYING, PROFILE, UNCHECKED, Parties, expected, initial_units, name_of

AVGM = {"server_step": "fedavgm", "server_rate": 0.7}
ADAM = {"server_step": "fedadam", "server_rate": 0.05}
ADAGRAD = {"server_step": "fedadagrad", "server_rate": 0.2}
YOGI = {"server_step": "fedyogi", "server_rate": 0.05}
STEPS = [AVGM, ADAGRAD, ADAM, YOGI]
UNIT = 1000
every_step = pytest.mark.parametrize("step", STEPS, ids=[step["server_step"] for step in STEPS])


class Oracle:
    """By the papers' formulas: the integers of the model, m and v, in a fixed order of operations."""

    def __init__(self, weights, step):
        self.weights, self.step = list(weights), TaskSettings.of(profile="shares", **step)
        self.m = self.v = np.zeros(len(self.weights))
        self.average = self.weights

    def read(self, average):
        """The average in units; what is held after it."""
        s, self.average = self.step, average
        g = np.array([a - w for a, w in zip(average, self.weights, strict=True)], dtype=np.float64) / UNIT
        if s.server_step == "fedavgm":
            self.m = s.server_momentum * self.m + g
            change = s.server_rate * self.m
        else:
            self.m = s.server_momentum * self.m + (1.0 - s.server_momentum) * g
            self.v = self.spread(self.v, g * g)
            change = s.server_rate * self.m / (self.v**0.5 + s.server_floor)
        self.weights = [w + round(x) for w, x in zip(self.weights, (change * UNIT).tolist(), strict=True)]

    def spread(self, v, square):
        kept, fresh = self.step.server_squares, 1.0 - self.step.server_squares
        if self.step.server_step == "fedadagrad":
            return v + square
        if self.step.server_step == "fedadam":
            return kept * v + fresh * square
        return np.where(v < square, kept * v + fresh * (v + square), kept * v + fresh * (v - square * (v > square)))

    def digest(self, number, hashes):
        """What all readers say of their state."""
        moments = [self.m] if self.step.server_step == "fedavgm" else [self.m, self.v]
        arrays = [struct.pack(f"<{len(self.weights)}q", *self.weights), *(m.astype("<f8").tobytes() for m in moments)]
        return hashlib.sha256(b"crowdfl state 1" + struct.pack(">I", number) + hashes + b"".join(arrays)).hexdigest()


def trained(parties, number, who=None):
    """Everyone's model after training from what the first one holds."""
    start = parties.people[name_of(0)]._followed().weights / UNIT
    rng = np.random.default_rng(number)
    common = 0.3 * rng.normal(size=parties.parameters)
    moved = {name: start + common + 0.1 * rng.normal(size=parties.parameters) for name in parties.names}
    return {name: moved[name] for name in who or parties.names}


def played(parties, number, who=None):
    """A round that nobody has read, and what it must lead to by whole numbers."""
    base, models = parties.people[name_of(0)]._followed().weights.tolist(), trained(parties, number, who)
    return parties.play(number, parties.encrypt(number, models)), expected(parties, base, models, parties.samples())


def restarted(parties, who):
    """Another process of the same person, with what was kept."""
    kept = parties.people[who].chain()
    person = parties.fresh_person(who)
    person.resume(kept, parties.initial)
    return person


def caught_up(person, publications):
    """What a reader gets of the last round, after all that it has not read."""
    found = None
    for number in sorted(number for number in publications if number > person._followed().number):
        found = person.read(publications[number], number)
    return found


@every_step
@pytest.mark.parametrize("kind", [UNCHECKED, PAYING], ids=["no checks", "rewards"])
def test_every_reader_reaches_the_oracles_state(step, kind):
    """The requester; a phone that restarts in every round, one that was away, one that joins late. Round 3 was given up."""
    parties, publications = Parties(settings=step | kind), {}
    oracle, absent = Oracle(initial_units(parties), step), {1: [name_of(4)], 2: [name_of(1), name_of(4)]}
    for number in (1, 2, 4, 5):
        present = [who for who in parties.names if who not in absent.get(number, [])]
        for who in present:
            caught_up(parties.people[who], publications)
        done, average = played(parties, number, present)
        publications[number] = done.publication
        oracle.read(average)
        wanted = parties.requester.read(done.publication, number)
        assert np.rint(wanted.weights * UNIT).tolist() == average
        assert np.rint(wanted.model * UNIT).tolist() == oracle.weights
        assert wanted.state == oracle.digest(number, parties.requester.chain()[4:68])
        parties.people[name_of(2)] = restarted(parties, name_of(2))
        for who in present:
            found = caught_up(parties.people[who], publications)
            assert (found.state, found.model.tolist()) == (wanted.state, wanted.model.tolist())
    assert caught_up(parties.fresh_person(name_of(0)), publications).state == wanted.state


@every_step
def test_the_plain_oracle_says_the_same_but_for_rounding(step):
    """What an encrypted campaign is compared with, on floats that nobody rounds."""
    parties = Parties(settings=step | UNCHECKED | {"decimals": 6})
    plain, model = PlainStep.of(parties.spec.settings), parties.initial
    for number in (1, 2, 3):
        models, samples = {who: model + 0.01 * i for i, who in enumerate(parties.names)}, parties.samples()
        average = parties.read(number, parties.play(number, parties.encrypt(number, models)))
        clear = np.average(list(models.values()), axis=0, weights=list(samples.values()))
        model = plain.next_model(model, clear)
        np.testing.assert_allclose(average.model, model, atol=3e-6)
        model = average.model


def test_a_step_of_rate_one_without_momentum_is_fedavg():
    """To the last unit, whatever the size of the change."""
    step = ServerStep.of(TaskSettings.of(profile="shares", server_step="fedavgm", server_momentum=0))
    change = np.array([0, 1, -1, 999_999, -123_456_789, 2**51, -(2**51) + 1])
    chain = ModelChain.start("t", np.linspace(-3, 3, len(change)), 10**6, step)
    stepped = chain.after(1, bytes(32), bytes(32), change, step)
    assert stepped.weights.tolist() == chain.averaged(change).tolist()


def test_a_task_without_a_step_keeps_no_moments():
    """Round, base, secret, weights."""
    old = struct.pack(">I", 7) + bytes(range(64)) + struct.pack("<3q", 5, -6, 2**61)
    chain = ModelChain.from_bytes(old, 3)
    assert (chain.number, chain.weights.tolist(), chain.moments) == (7, [5, -6, 2**61], ())
    assert chain.base + chain.secret == bytes(range(64))
    assert chain.to_bytes() == old
    for step in STEPS:
        with pytest.raises(FormatError):
            ModelChain.from_bytes(old, 3, ServerStep.of(TaskSettings.of(profile="shares", **step)))
    parties = Parties(settings=UNCHECKED)
    average = parties.read(1, parties.play(1, parties.encrypt(1, parties.models())))
    assert (average.state, average.stepped) == (None, None)
    assert average.model is average.weights


@every_step
def test_one_bit_of_the_state_changes_the_digest(step):
    """Of the round, the base, a weight, m or v: every bit that is kept, one after the other."""
    chosen = ServerStep.of(TaskSettings.of(profile="shares", **step))
    chain = ModelChain.start("t", np.array([1.0, -2.0]), UNIT, chosen).after(
        1, bytes(32), bytes(32), np.array([300, 7]), chosen
    )
    whole, seen = chain.to_bytes(), {chain.digest()}
    for bit in range(8 * len(whole)):
        other = (int.from_bytes(whole, "little") ^ (1 << bit)).to_bytes(len(whole), "little")
        seen.add(ModelChain.from_bytes(other, 2, chosen).digest())
    assert len(seen) == 1 + 8 * len(whole)


@every_step
def test_updates_are_relative_to_the_stepped_model(step):
    """Whoever sends back what it holds adds nothing: its model is S', not the average."""
    parties = Parties(settings=step | UNCHECKED)
    parties.read(1, played(parties, 1)[0])
    held = parties.people[name_of(0)]._followed().weights / UNIT
    average = parties.read(2, parties.play(2, parties.encrypt(2, dict.fromkeys(parties.names, held))))
    assert average.weights.tolist() == held.tolist()
    assert average.model.tolist() != held.tolist()  # momentum goes on


def test_a_model_far_beyond_the_clip_is_averaged_exactly():
    """`clip` and `max_norm` bound updates, not models: the sums stay as small, and nothing is clipped or scaled."""
    parties = Parties(settings={"server_step": "fedavgm", "server_rate": 1000, "server_momentum": 0.99})
    oracle = Oracle(initial_units(parties), {"server_step": "fedavgm", "server_rate": 1000, "server_momentum": 0.99})
    for number in (1, 2, 3):
        done, average = played(parties, number)
        oracle.read(average)
        found = parties.read(number, done)
        assert np.rint(found.model * UNIT).tolist() == oracle.weights
        assert all(person.clipped == 0 and person.scaled is None for person in parties.people.values())
    assert np.abs(found.model).max() > 100 * parties.spec.settings.clip


def test_a_step_out_of_range_is_refused_and_changes_nothing():
    """The same on every device, by name; the reader stands where it stood."""
    step = {"server_step": "fedavgm", "server_rate": 1000, "server_momentum": 0, "decimals": 12, "clip": 9000.0}
    bounds = {"max_norm": None, "max_participants": 5, "max_samples": 1}
    parties = Parties(settings=UNCHECKED | step | bounds)
    far = dict.fromkeys(parties.names, parties.initial + 8000.0)
    done = parties.play(1, parties.encrypt(1, far, dict.fromkeys(parties.names, 1)))
    before = parties.requester.chain()
    for reader in (parties.requester, *parties.people.values()):
        with pytest.raises(SlotOverflow, match="server_rate"):
            reader.read(done.publication, 1)
    assert parties.requester.chain() == before


@settings(max_examples=50, deadline=None)
@given(
    changes=st.lists(st.integers(-(2**62), 2**62), min_size=1, max_size=12),
    momentum=st.floats(0, 1, exclude_max=True),
    squares=st.floats(0, 1, exclude_max=True),
    floor=st.floats(1e-12, 1000),
    rate=st.floats(1e-300, 1000),
    decimals=st.integers(0, 12),
    kind=st.sampled_from([step["server_step"] for step in STEPS]),
)
def test_no_setting_and_no_average_crash_a_reader(changes, momentum, squares, floor, rate, decimals, kind):
    """Every sum that a ring of 64 bits can hold, and every setting that is allowed: a model in range, or `SlotOverflow`."""
    given_ = {"server_step": kind, "server_rate": rate, "server_momentum": momentum, "decimals": decimals, "clip": 1e-3}
    own = {"server_floor": floor} if kind != "fedavgm" else {}
    own |= {"server_squares": squares} if kind in ("fedadam", "fedyogi") else {}
    try:
        step = ServerStep.of(TaskSettings.of(profile="shares", **given_, **own))
    except SettingsError:
        return
    chain = ModelChain.start("t", np.zeros(1), 1, step)
    with np.errstate(all="raise", under="ignore"):
        for number, change in enumerate(changes, start=1):
            try:
                chain = chain.after(number, bytes(32), bytes(32), np.array([change]), step)
            except SlotOverflow:
                return
            assert abs(int(chain.weights[0])) < 2**62
            assert ModelChain.from_bytes(chain.to_bytes(), 1, step).digest() == chain.digest()


def stepped(kind, averages, momentum, squares, floor=1e-12):
    """The largest step that these averages lead to, in rates, and the bound. An average is a number, or a part of v's root."""
    step = ServerStep(kind, 10**6, 1.0, momentum, squares, floor)
    moments, largest, most = step.start(1), 0, 1
    for average, of_v in averages:
        change = round(average * float(np.sqrt(moments[1][0])) * 10**6) if of_v else round(average)
        most = max(most, abs(change))
        moved, moments = step.apply(np.array([change]), moments)
        largest = max(largest, abs(int(moved[0])))
    return largest / 10**6, step.furthest(most / 10**6)


@settings(max_examples=300, deadline=None)
@given(
    kind=st.sampled_from(["fedadagrad", "fedadam", "fedyogi"]),
    averages=st.lists(
        st.tuples(st.floats(-(10**9), 10**9), st.just(False)) | st.tuples(st.floats(-1.1, 1.1), st.just(True)),
        min_size=1,
        max_size=40,
    ),
    momentum=st.floats(0, 0.99),
    gap=st.floats(0.001, 0.999),
    floor=st.sampled_from([1e-12, 1e-3, 1.0]),
)
def test_no_averages_move_a_weight_further_than_the_settings_say(kind, averages, momentum, gap, floor):
    """Whatever they are, and also where each is chosen by the squares so far. docs/shares.md has the proof."""
    squares = momentum**2 + gap * (1 - momentum**2)
    largest, bound = stepped(kind, averages, momentum, squares, floor)
    assert largest <= bound * (1 + 1e-9) + 1e-6  # a unit: steps are rounded


@pytest.mark.parametrize(
    ("kind", "growth", "reached"),
    [("fedadagrad", 1 / 0.9, 0.999), ("fedadam", 0.99 / 0.9, 0.999), ("fedyogi", 1 / 0.9, 0.67)],
)
def test_averages_that_grow_move_a_weight_as_far_as_is_said(kind, growth, reached):
    """A bound far above all steps would let a model that stands still pass."""
    largest, bound = stepped(kind, [(1000 * growth**i, False) for i in range(90)], 0.9, 0.99)
    assert reached * bound < largest


def test_averages_just_below_the_root_move_a_weight_of_fedyogi_further_than_fedadams_bound():
    """v then shrinks as fast as it may, and m does not: fedadam's bound would not hold."""
    chasing = [(1e15, False)] + [(-1 + 1e-6, True)] * 24
    largest, bound = stepped("fedyogi", chasing, 0.5, 0.3)
    assert bound >= largest > 4 * stepped("fedadam", chasing, 0.5, 0.3)[1]


@pytest.mark.parametrize(
    ("step", "furthest"),
    [(AVGM, 0.7 * 2.0 / (1 - 0.9)), (ADAGRAD, 0.2 * 0.2294), (ADAM, 0.05 * 2.345), (YOGI, 0.05 * 3.398)],
)
def test_a_task_is_explained_with_how_far_a_round_moves_a_weight(step, furthest):
    task = TaskSettings.of(profile="shares", clip=2.0, max_norm=3.0, **step)
    assert PROFILE.explain(task, 8).splitlines()[-1].endswith(f"by at most {furthest:.3g} in a round")
    assert "server step" not in PROFILE.explain(task.changed(server_step="none", server_rate=1.0), 8)


def test_a_decimal_is_the_same_number_however_it_is_written():
    """1 and 1.0 are two tasks, and one step."""
    whole, point = (TaskSettings.of(profile="shares", server_step="fedavgm", server_rate=rate) for rate in (2, 2.0))
    assert ServerStep.of(whole) == ServerStep.of(point)


# What a server that deviates can do.


def test_another_publication_for_one_reader_is_refused():
    """SP adds to its own half for one phone: it is not the sum of CSP's record."""
    parties = Parties(settings=AVGM | UNCHECKED)
    done, _ = played(parties, 1)
    message = SharesPublication.from_bytes(done.publication, parties.shape.limits())
    forged = replace(message, sums=bytes([message.sums[0] ^ 1]) + message.sums[1:]).to_bytes()
    victim = parties.people[name_of(4)]
    with pytest.raises(ChainBroken, match="not the one of CSP's record"):
        victim.read(forged, 1)
    honest = parties.requester.read(done.publication, 1)
    assert {parties.people[who].read(done.publication, 1).state for who in parties.names} == {honest.state}


# Settings.


@pytest.mark.parametrize("profile", ["hardened", "paper"])
@every_step
def test_a_profile_whose_requester_reads_the_last_average_alone_has_no_steps(profile, step):
    with pytest.raises(SettingsError, match=r"has no server_step = .*choose the profile shares"):
        profile_named(profile).check(TaskSettings.of(profile=profile, **step), 10)


REFUSED = {
    "an unknown step": {"server_step": "fednova"},
    "no rate": AVGM | {"server_rate": 0},
    "a huge rate": AVGM | {"server_rate": 1001},
    "an infinite rate": AVGM | {"server_rate": float("inf")},
    "a rate that is no number": AVGM | {"server_rate": float("nan")},
    "momentum that never ends": AVGM | {"server_momentum": 1},
    "negative momentum": AVGM | {"server_momentum": -0.1},
    "no floor": ADAM | {"server_floor": 0},
    "squares that never end": ADAM | {"server_squares": 1.0},
    "squares forgotten before the momentum": ADAM | {"server_squares": 0.81, "server_momentum": 0.9},
    "squares of fedyogi forgotten before the momentum": YOGI | {"server_squares": 0.5, "server_momentum": 0.8},
}


@pytest.mark.parametrize("given_", REFUSED.values(), ids=REFUSED.keys())
def test_settings_that_do_not_stand(given_):
    with pytest.raises(SettingsError, match=r"^`server_\w+` is "):
        TaskSettings.of(profile="shares", **given_)


def test_the_oracle_of_these_tests_is_exact():
    """A step by hand: g = 0.1, m = 0.01, v = 0.0001, 0.05 * 0.01 / (0.01 + 0.001) = 0.04545..."""
    oracle = Oracle([0], ADAM)
    oracle.read([100])
    assert oracle.weights == [round(Fraction(5, 110) * UNIT)]
