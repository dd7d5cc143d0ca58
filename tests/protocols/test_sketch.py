"""The sketch of the distances: unbiased, as precise as promised, on real updates; and encrypted as in the clear.

The sketch is linear, so its error can be studied in the clear with the very coins that the servers use.
"""

import hashlib
from pathlib import Path

import numpy as np
import pytest

from crowdfl.crypto.public_coins import public_permutation, public_stream
from crowdfl.errors import LengthMismatch, OutOfTurn
from crowdfl.learning.oracle import fedavg
from crowdfl.protocols.hardened.manifest import CoinsReply
from crowdfl.protocols.hardened.prirwd import sketch
from crowdfl.protocols.profile import width_budget
from crowdfl.settings import TaskSettings
from tests.protocols.driving import SMALL, Wire, converse, deal

DATA = Path(__file__).parents[3] / "shared" / "data" / "wisdm_v1.1_crowdfl_2520x90x3.npz"
SEEDS = 200


def lanes_of(flat, task_seed, coins, slots, buckets):
    """Flat vectors permuted and signed as by `ModelCodec`, packed row by row, the rows dealt into buckets as by `sketch`."""
    permuted = flat[..., public_permutation(task_seed, "parameters", flat.shape[-1])]
    negated = np.frombuffer(public_stream(task_seed, "parameter signs", flat.shape[-1]), dtype=np.uint8) & 1
    permuted = permuted * np.where(negated, -1, 1)
    count = -(-flat.shape[-1] // slots)
    rows = _padded(permuted, count * slots).reshape(*flat.shape[:-1], count, slots)
    order = public_permutation(coins, "sketch order", count)
    minus = np.frombuffer(public_stream(coins, "sketch signs", count), dtype=np.uint8) & 1
    signed = rows[..., order, :] * np.where(minus, -1, 1)[:, None]
    layers = -(-count // buckets)  # row j of the new order falls into bucket j % buckets
    grid = _padded(signed.reshape(*flat.shape[:-1], -1), layers * buckets * slots)
    return grid.reshape(*flat.shape[:-1], layers, buckets * slots).sum(axis=-2)


def _padded(flat, size):
    return np.concatenate([flat, np.zeros((*flat.shape[:-1], size - flat.shape[-1]), dtype=flat.dtype)], axis=-1)


def relative_errors(differences, lanes):
    """Of every squared distance over many seeds, and how many lanes there really were."""
    differences = np.asarray(differences)
    budget = width_budget(TaskSettings(profile="hardened", lanes=lanes), differences.shape[1], sigma=40)
    true, errors = (differences**2).sum(axis=1), []
    for number in range(SEEDS):
        task_seed, coins = (hashlib.sha256(bytes([which, number])).digest() for which in (1, 2))
        sketched = lanes_of(differences, task_seed, coins, budget.slots, budget.buckets)
        errors.append((sketched**2).sum(axis=1) / true - 1)
    return np.array(errors), budget.buckets * budget.slots


def check_errors(differences, lanes):
    """The promised bounds: spread, worst case, bias (within five standard errors of the mean, seeds being independent)."""
    errors, k = relative_errors(differences, lanes)
    promised = np.sqrt(2 / k)
    assert errors.std() <= 1.2 * promised
    assert np.abs(errors).max() <= 6 * promised
    assert abs(errors.mean()) <= 5 * promised / np.sqrt(SEEDS)
    assert errors.std() >= 0.3 * promised  # a sketch that loses nothing has not been sketched


def one_hidden_layer(rng, inputs, hidden, classes):
    shapes = [(inputs, hidden), (hidden,), (hidden, classes), (classes,)]
    return [rng.normal(size=shape) * np.sqrt(2 / shape[0]) * (len(shape) > 1) for shape in shapes]


def train(start, x, y, rng, *, epochs=20, batch=10, rate=0.05):
    """Plain SGD on cross-entropy; the trained weights, flat."""
    w1, b1, w2, b2 = (array.copy() for array in start)
    for _ in range(epochs):
        shuffled = rng.permutation(len(x))
        for place in range(0, len(x), batch):
            rows = shuffled[place : place + batch]
            h = np.maximum(x[rows] @ w1 + b1, 0)
            scores = h @ w2 + b2
            slope = np.exp(scores - scores.max(axis=1, keepdims=True))
            slope /= slope.sum(axis=1, keepdims=True)
            slope[np.arange(len(rows)), y[rows]] -= 1
            back = (slope @ w2.T) * (h > 0)
            for array, gradient in ((w2, h.T @ slope), (b2, slope.sum(0)), (w1, x[rows].T @ back), (b1, back.sum(0))):
                np.subtract(array, rate / len(rows) * gradient, out=array)
    return np.concatenate([array.ravel() for array in (w1, b1, w2, b2)])


@pytest.fixture(scope="module")
def real_differences():
    """How the models of eight people of WISDM, trained from one start, differ from their average."""
    if not DATA.exists():
        pytest.skip(f"{DATA.name} is not there: put it beside the repository in shared/data")
    with np.load(DATA, allow_pickle=False) as data:
        x = data["x_z"].reshape(len(data["x_z"]), -1).astype(np.float64)
        y, user, train_rows = data["label"].astype(int), data["user"], data["train"]
    rng = np.random.default_rng(0)
    start = one_hidden_layer(rng, x.shape[1], 32, 6)
    own = [(user == who) & train_rows for who in range(1, 9)]
    models = [train(start, x[rows], y[rows], rng) for rows in own]
    average = fedavg(models, [int(rows.sum()) for rows in own])
    return [model - average for model in models]


@pytest.mark.parametrize("lanes", [64, 256, 1024])
def test_distances_of_real_updates(real_differences, lanes):
    """Networks of 8,870 weights trained on real sensor data."""
    check_errors(real_differences, lanes)


def structured(kind, rng, size=6000):
    """Differences as models have them: layers of different scales, a few heavy weights, a pattern that repeats."""
    if kind == "layers":
        return np.concatenate([rng.normal(size=size // 2) * 0.01, rng.normal(size=size // 3), np.zeros(size // 6)])
    if kind == "heavy":
        difference = rng.normal(size=size) * 0.01
        difference[:: size // 300] = 1.0 - 2 * rng.integers(0, 2, size=300)
        return difference
    if kind == "periodic":
        return np.sin(np.arange(size) * 2 * np.pi / 21)
    return np.outer(rng.normal(size=60), rng.normal(size=size // 60)).ravel()


@pytest.mark.parametrize("kind", ["layers", "heavy", "periodic", "rank one"])
@pytest.mark.parametrize("lanes", [128, 1024])
def test_distances_of_structured_updates(kind, lanes):
    """Structure in the order of the weights does not reach the sketch: the public permutation removes it."""
    rng = np.random.default_rng(5)
    check_errors([structured(kind, rng) for _ in range(3)], lanes)


@pytest.mark.parametrize("offset", [1.0, 10.0])
def test_distances_of_updates_that_drift_one_way(offset):
    """Every weight moved in the same direction, as by weight decay or an outlier: no permutation removes that."""
    rng = np.random.default_rng(6)
    check_errors([offset + rng.normal(size=6000) for _ in range(3)], 512)


def small_task(lanes, parameters):
    """A task of three under a short key, with a sketch."""
    return deal(3, parameters, **(SMALL | {"lanes": lanes, "rounds": 5, "max_participants": 3}))


def test_the_encrypted_sketch_is_the_plain_one():
    """Lane for lane, on an upload as a participant makes it."""
    sides = small_task(lanes=12, parameters=60)
    shape = sides.sp._shape
    rng = np.random.default_rng(1)
    weights, coins = rng.uniform(-2, 2, size=60), bytes(range(32))
    sides.sp.add_all({"p0": sides.upload(weights, 7, "p0")})
    upload = sides.sp.averaged("p0").part(0, -1)
    assert shape.budget.buckets < len(upload)
    sketched = sketch(upload, coins, shape.budget, sides.sp.party)
    opened = sides.csp.party.finish(sketched, sides.sp.party.partial_decrypt(sketched))
    lanes = shape.packing.unpack_wide(opened, shape.budget.buckets * shape.budget.slots)
    encoded = 7 * shape.budget.encoding.encode(weights).values
    plain = lanes_of(encoded, shape.seed, coins, shape.budget.slots, shape.budget.buckets)
    assert lanes == plain.tolist()


def test_rewards_are_those_of_the_plain_sketch():
    """A whole encrypted reward, with the coins that SP and CSP agreed on, against Eq. 10 on the sketched distances."""
    sides = small_task(lanes=12, parameters=60)
    shape = sides.sp._shape
    rng = np.random.default_rng(2)
    models, samples = rng.normal(size=60) * 0.3 + rng.normal(size=(3, 60)) * 0.2, [3, 9, 10]
    for i in range(3):
        sides.sp.add_all({f"p{i}": sides.upload(models[i], samples[i], f"p{i}")})
    wire = Wire(sides.csp)
    converse(sides.sp.reward(36_000_000), wire)
    limits = sides.csp.party.limits(1)
    closed = hashlib.sha256(b"crowdfl hardened manifest 1" + wire.requests[0]).digest()
    nonce = CoinsReply.from_bytes(wire.replies[0], limits).nonce
    coins = hashlib.sha256(b"crowdfl sketch 2" + closed + nonce).digest()

    encoded = [shape.budget.encoding.encode(model).values for model in models]
    lanes = [lanes_of(w, shape.seed, coins, shape.budget.slots, shape.budget.buckets) / 1000 for w in encoded]
    average = fedavg(lanes, samples)
    shares = np.array([n / (np.sum((lane - average) ** 2) + 1e-3) for lane, n in zip(lanes, samples, strict=True)])
    paid = [sides.people[who].open_reward(envelope, 1) for who, envelope in sorted(sides.sp.envelopes().items())]
    assert np.abs(paid - 36e6 * shares / shares.sum()).max() <= 2


def test_a_sketch_of_everything_is_exact():
    """More lanes than parameters: the lanes are the upload, nothing is summed."""
    sides = small_task(lanes=1000, parameters=9)
    sides.sp.add_all({"p0": sides.upload([0.5] * 9, 1, "p0")})
    upload = sides.sp.averaged("p0").part(0, -1)
    assert sketch(upload, bytes(32), sides.sp._shape.budget, sides.sp.party) is upload


def test_the_coins_are_drawn_after_the_uploads_are_closed():
    """CSP gives one nonce for one set of uploads, and refuses another set in the same round; every round has its own."""
    sides = small_task(lanes=12, parameters=60)
    request = sides.manifest(1, 36_000_000)
    first = sides.csp.answer(request)
    assert sides.csp.answer(request) == first
    with pytest.raises(OutOfTurn, match="other contents"):
        sides.csp.answer(sides.manifest(1, 36_000_000, bytes(32)))
    assert sides.csp.answer(sides.manifest(2, 36_000_000)) != first


@pytest.mark.parametrize("digest", [b"", bytes(range(31)), bytes(33)])
def test_the_digest_that_closes_a_round_has_one_length(digest):
    """A prefix of it is another digest, and is refused."""
    sides = small_task(lanes=12, parameters=60)
    with pytest.raises(LengthMismatch, match="where 32 are expected"):
        sides.csp.answer(sides.manifest(1, 36_000_000, digest))
    assert sides.csp.answer(sides.manifest(1, 36_000_000))
