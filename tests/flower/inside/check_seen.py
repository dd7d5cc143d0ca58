"""What passes through the server, and what it keeps: no update, no average, no seed and no key can be found in it."""

import json
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
from flwr.serverapp.strategy import FedAvg

from crowdfl.crypto.randomness import SEED_BYTES
from crowdfl.flower import CrowdFLStrategy, crowdfl_mod
from crowdfl.protocols.shares.round import upload as uploads
from tests.flower.inside.grid import ServedGrid, average, initial, make_app, samples, update

NODES = range(1, 6)
UNIT = 10**6


def forms(array: np.ndarray, start: np.ndarray, count: int) -> Iterable[bytes]:
    """A secret array as somebody could have written it: as numbers of any type, and as a change, weighted or not."""
    wide = array.astype(np.float64)
    change = np.rint((wide - np.rint(start.astype(np.float64) * UNIT) / UNIT) * UNIT).astype(np.int64)
    whole = np.rint(wide * UNIT).astype(np.int64)
    for found in (wide.astype(np.float32), wide, wide - start, change, change * count, whole):
        for one in (found, found.astype(found.dtype.newbyteorder(">"))):
            yield one.reshape(-1)[:4].tobytes()  # four entries in a row: sixteen bytes at least, no accident


def secret_forms(model, nodes) -> list[bytes]:
    start = model["weight"].numpy()
    made = [(update(node, model)["weight"], samples(node)) for node in nodes]
    made.append((average(model, nodes)["weight"].numpy(), 1))
    return [form for array, count in made for form in forms(array, start, count)]


def keys_of(grid: ServedGrid) -> list[bytes]:
    """Every client's private keys, as bytes and as text."""
    records = [record for context in grid.contexts.values() for record in context.state.config_records.values()]
    texts = [text for record in records for text in json.loads(record["keys"])]
    assert len(texts) == 2 * len(NODES)
    return [form for text in texts for form in (text.encode(), bytes.fromhex(text))]


def kept_by(sp) -> list[bytes]:
    blobs = [sp.blobs.get(name) for name in sp.blobs.listing()]
    return blobs + [sp.ports.bundles.get(name) for name in sp.ports.bundles.listing()]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory):
    """A sealed run with rewards, the seeds that its clients drew, and all that the server saw."""
    drawn: list[bytes] = []
    from_seed = uploads.upload_from_seed

    def recorded(*arguments):
        drawn.append(arguments[-2])  # the last is a salt, which SP is shown
        return from_seed(*arguments)

    grid, home = ServedGrid(make_app(mods=[crowdfl_mod]), NODES), tmp_path_factory.mktemp("run")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(uploads, "upload_from_seed", recorded)
        strategy = CrowdFLStrategy(FedAvg(), home=home, budget="5.00")
        strategy.start(grid, initial(), num_rounds=2)
    published = [path.read_bytes() for path in (home / "published").iterdir()]
    return grid, drawn, grid.seen + kept_by(strategy.federation.sp) + published


def test_no_update_and_no_average_is_in_it(run):
    _, _, seen = run
    model = initial()
    for _ in range(2):
        for form in secret_forms(model, NODES):
            assert not any(form in one for one in seen)
        model = average(model, NODES)


def test_no_seed_and_no_key_is_in_it(run):
    grid, drawn, seen = run
    assert len(drawn) == 2 * len(NODES)
    assert all(len(seed) == SEED_BYTES for seed in drawn)
    for secret in (*drawn, *(seed.hex().encode() for seed in drawn), *keys_of(grid)):
        assert not any(secret in one for one in seen)


def test_no_number_of_training_samples_is_in_it(run):
    grid, _, _ = run
    trained = [message for message in grid.seen if b"loss" in message]
    assert len(trained) == 2 * len(NODES)
    assert not any(b"num-examples" in message for message in trained)


def test_the_search_finds_what_is_there():
    grid = ServedGrid(make_app(), NODES)
    FedAvg().start(grid, initial(), num_rounds=2)
    for node in NODES:
        array = update(node, initial())["weight"]
        assert any(array.reshape(-1)[:4].tobytes() in message for message in grid.seen)
    assert any(b"num-examples" in message for message in grid.seen)


def test_clients_keep_their_keys_from_the_reply(tmp_path: Path):
    """Not even a client's own folder of keys appears in what it sends."""
    grid = ServedGrid(make_app(mods=[crowdfl_mod]), NODES)
    for node, context in grid.contexts.items():
        context.node_config["crowdfl-home"] = str(tmp_path / str(node))
    CrowdFLStrategy(FedAvg(), reveal=True).start(grid, initial(), num_rounds=1)
    kept = [path.read_bytes() for path in tmp_path.glob("*/*/keys")]
    assert len(kept) == len(NODES)
    for text in (text for one in kept for text in json.loads(one)):
        assert not any(text.encode() in message or bytes.fromhex(text) in message for message in grid.seen)
