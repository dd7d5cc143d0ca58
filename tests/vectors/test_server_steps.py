"""Every case of vectors/server_steps.json: what the phone's JavaScript computes from it, Python does too, bit for bit."""

import json
from pathlib import Path

import numpy as np
import pytest

from crowdfl import errors
from crowdfl.protocols.shares.chain import ModelChain
from crowdfl.protocols.shares.server_optimizers import ServerStep
from crowdfl.settings import TaskSettings

FOLDER = Path(__file__).parents[2] / "vectors"
VECTORS = json.loads((FOLDER / "server_steps.json").read_text(encoding="utf-8"))


def each(cases):
    return pytest.mark.parametrize("case", [pytest.param(case, id=case["name"]) for case in cases])


def task_of(case) -> TaskSettings:
    return TaskSettings.of(profile="shares", clip=1e-3, **case["settings"])


def read(chain, case, number, base, secret, change):
    step, change = ServerStep.of(task_of(case)), np.array([int(value) for value in change], dtype=np.int64)
    return chain.averaged(change), chain.after(number, base, secret, change, step)


@each(VECTORS["cases"])
def test_steps(case):
    """Each round from the one before it, and from what was kept of that."""
    step, initial = ServerStep.of(task_of(case)), np.array([int(value) for value in case["start"]["weights"]])
    chain = ModelChain.start(VECTORS["task"], initial, 1, step)
    assert chain.to_bytes().hex() == case["start"]["chain"]
    assert chain.digest() == case["start"]["state"]
    for said in case["rounds"]:
        kept = ModelChain.from_bytes(chain.to_bytes(), len(initial), step)
        base, secret = bytes.fromhex(said["base"]), bytes.fromhex(said["secret"])
        average, chain = read(kept, case, said["round"], base, secret, said["change"])
        assert [str(value) for value in average] == said["average"]
        assert [str(value) for value in chain.weights] == said["weights"]
        assert [moment.astype("<f8").tobytes().hex() for moment in chain.moments] == said["moments"]
        assert chain.to_bytes().hex() == said["chain"]
        assert chain.digest() == said["state"]


@each(VECTORS["bad"])
def test_what_must_be_refused(case):
    def refused() -> None:
        chain = ModelChain.from_bytes(bytes.fromhex(case["chain"]), 2, ServerStep.of(task_of(case)))
        read(chain, case, 9, bytes(32), bytes(32), case["change"])

    with pytest.raises(getattr(errors, case["error"])):
        refused()
