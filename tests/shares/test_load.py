"""Many uploads cost SP and CSP the memory of a model, not of the uploads."""

import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from crowdfl.protocols.shares.chain import ModelChain
from crowdfl.protocols.shares.round.upload import make_upload, upload_bytes
from tests.hosts import FileDisk
from tests.shares.crowd import Crowd

PEOPLE, PARAMETERS = 200, 50_000


@pytest.mark.second
@pytest.mark.timeout(1200)
def test_two_hundred_uploads_take_the_memory_of_a_model_and_of_their_lanes(tmp_path: Path):
    """Received, added up, checked and averaged: at most four models and 64 MB, of which the lanes of all are the most."""
    crowd = Crowd(
        PEOPLE,
        PARAMETERS,
        host={"disk": FileDisk(tmp_path, durable=False)},
        max_participants=PEOPLE,
        max_norm=20.0,
        clip=0.5,
        lanes=128,
        rounds=1,
        budget=None,
    )
    model, chance = upload_bytes(crowd.shape), np.random.default_rng(3)
    first = next(iter(crowd.people.values()))
    base = ModelChain.start(crowd.task, crowd.initial, 1000).base
    sealing, place = first.side.bundle.csp_sealing, crowd.shape.place(1, base)  # type: ignore[attr-defined]
    sums, total = np.zeros(PARAMETERS), 0
    tracemalloc.start()
    for count, person in enumerate(crowd.people.values(), 1):
        change, samples = chance.integers(-40, 41, PARAMETERS), 1 + count % 10
        body = make_upload(crowd.shape, place, person.keys.who, person.keys.signing, sealing, change * samples, samples)
        person.blobs.put("rounds/1/upload", body.to_bytes())
        person.send(1)
        sums, total = sums + change * samples, total + samples
    received, peak = tracemalloc.get_traced_memory()
    assert peak <= 8 * model + 16 * 2**20  # a phone's own work is in it, one after the other
    assert received <= 2 * model + 16 * 2**20
    tracemalloc.reset_peak()
    crowd.run()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert crowd.states == ["rewarded"]
    assert peak - received <= 2 * (4 * model + 64 * 2**20)  # of two servers and KGC
    assert peak - received < PEOPLE * model
    found = np.array(crowd.units(1)) - np.array(crowd.start())
    assert np.max(np.abs(found - sums / total)) <= 0.5 + 1e-6
