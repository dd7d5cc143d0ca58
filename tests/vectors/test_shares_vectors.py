"""Every case of vectors/shares_expansion.json, good and bad."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

from crowdfl import errors
from crowdfl.crypto.shares.dcf import corrections_bytes, evaluate, generate
from crowdfl.crypto.shares.expansion import expand
from crowdfl.crypto.shares.ring import Ring, RunningSum
from crowdfl.crypto.shares.sketch import Sketch

VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "shares_expansion.json").read_text(encoding="utf-8"))


def each(group: str, *fields: str):
    """One test for each case of a group, under its own name."""
    rows = [pytest.param(case, id=" ".join(str(case[field]) for field in fields)) for case in VECTORS[group]]
    return pytest.mark.parametrize("case", rows)


def ints(texts: list[str]) -> list[int]:
    return [int(text) for text in texts]


@each("expansions", "context", "length")
def test_expansions(case):
    """The bytes; of a long stream its hash and its last ones."""
    data = expand(bytes.fromhex(case["seed"]), bytes.fromhex(case["context"]), case["length"])
    assert len(data) == case["length"]
    if "bytes" in case:
        assert data.hex() == case["bytes"]
    else:
        assert (hashlib.sha256(data).hexdigest(), data[-16:].hex()) == (case["sha256"], case["last"])


@each("rings", "bits")
def test_rings(case):
    ring, data, values = Ring(case["bits"]), bytes.fromhex(case["bytes"]), ints(case["values"])
    assert ring.decode(data).tolist() == ints(case["elements"])
    assert ring.signed(ring.decode(data)).tolist() == values
    assert ring.encode(ring.of_signed(np.array(values, dtype=np.int64))) == data


@each("sharings", "bits")
def test_sharings(case):
    """CSP's share is its stream; SP's is the rest; both add up."""
    ring, values = Ring(case["bits"]), np.array(ints(case["values"]), dtype=np.int64)
    csp = expand(bytes.fromhex(case["seed"]), bytes.fromhex(case["context"]), len(values) * ring.bytes)
    rest = RunningSum(ring, len(values))
    rest.add(ring.encode(ring.of_signed(values)))
    rest.add(ring.encode(-ring.decode(csp)))
    assert (csp.hex(), ring.encode(rest.result()).hex()) == (case["csp"], case["sp"])
    rest.add(csp)
    assert ring.signed(rest.result()).tolist() == values.tolist()


@each("sketches", "name")
def test_sketches(case):
    """Where each coordinate goes with which sign, and the lanes of a vector."""
    sketch = Sketch(bytes.fromhex(case["coins"]), case["parameters"], case["rows"], case["buckets"])
    places = [sketch.of(row) for row in range(case["rows"])]
    assert [bucket.tolist() for bucket, _ in places] == case["bucket"]
    assert [sign.tolist() for _, sign in places] == case["sign"]
    vector = np.array([ints(case["vector"])], dtype=np.uint64)
    assert sketch.lanes(vector).tolist() == [ints(case["lanes"])]


@each("comparisons", "name")
def test_comparisons(case):
    """The corrections to the byte, each party's outputs, and what they say together."""
    bits, points, instances = case["bits"], ints(case["points"]), np.array(case["instances"])
    sp, csp = (bytes.fromhex(case["seeds"][party]) for party in ("sp", "csp"))
    corrections = generate(ints(case["alphas"]), bits, sp, csp)
    assert corrections.hex() == case["corrections"]
    assert len(corrections) == corrections_bytes(len(case["alphas"]), bits)
    outputs = [evaluate(i, seeds, corrections, instances, points, bits) for i, seeds in enumerate((sp, csp))]
    assert [output.tolist() for output in outputs] == [case["sp"], case["csp"]]
    assert (outputs[0] ^ outputs[1]).tolist() == case["below"]


@each("bad", "step", "bits")
def test_bad_steps(case):
    steps = {
        "ring": lambda bits, _: Ring(bits),
        "decode": lambda bits, data: Ring(bits).decode(data),
        "compare": lambda bits, data: evaluate(0, bytes(16), data, np.array([0]), [0], bits),
    }
    error = getattr(errors, case["error"])
    with pytest.raises(error) as caught:
        steps[case["step"]](case["bits"], bytes.fromhex(case.get("bytes", "")))
    assert caught.type is error
