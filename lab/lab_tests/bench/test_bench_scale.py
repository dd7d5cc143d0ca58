"""`crowdfl bench scale` of `hardened` and `shares`: its fits, its samples, its points."""

import json
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from crowdfl.crypto.compute import Threads
from crowdfl.crypto.paillier.pctd import FreshRandomizers
from crowdfl.crypto.paillier.vector import CipherVector, combine, encrypt
from crowdfl.errors import ProtocolError
from crowdfl_lab.bench import command
from crowdfl_lab.bench.scale import run as measured
from crowdfl_lab.bench.scale.points import ChildRole, ScalePoint, exponent, exponents
from crowdfl_lab.bench.scale.role import Sampled
from crowdfl_lab.bench.scale.run import ScaleSettings, SharesScaleSettings, measure_points, scale_result
from crowdfl_lab.report import output

SMALL = replace(
    ScaleSettings.quick(),
    parameters=(100, 400),
    crowds=(10, 40),
    crowd_parameters=60,
    rewarded=(4,),
    lanes=40,
    key_bits=(1536,),
    key_parameters=100,
    insecure_test_key=True,
)
SHARES = SharesScaleSettings(parameters=(100, 2_000), uploads=3, crowds=(5, 20), crowd_parameters=50, rewarded=(4,))
SERVERS = ("SP: add", "SP: publish", "SP: memory, working", "CSP: memory, working", "upload")


@pytest.fixture(scope="module")
def points() -> list[ScalePoint]:
    """One small run of `hardened` for all the tests that only look."""
    return measure_points(SMALL)


@pytest.fixture(scope="module")
def shares() -> list[ScalePoint]:
    return measure_points(SHARES)


@pytest.mark.parametrize("power", [0, 0.5, 1, 2])
def test_a_power_law_is_found(power):
    """Whatever its factor."""
    x = [10, 100, 1_000, 10_000]
    assert exponent(x, [3.7 * value**power for value in x]) == pytest.approx(power, abs=1e-9)


def test_the_first_rows_decrypt_and_the_rest_is_accounted_for(keys):
    """Both servers compute the same rows; the time of the others follows from theirs."""
    backends = [Sampled(Threads(1), 3), Sampled(Threads(1), 3)]
    vector = encrypt(FreshRandomizers(keys.public), range(8), backend=Threads(1))
    halves = [vector.partial_decrypt(s, backend=b) for s, b in zip(keys.shares, backends, strict=True)]
    opened = combine(halves[0], halves[1], backend=backends[1])
    assert [int.from_bytes(row.tobytes(), "big") for row in opened] == [0, 1, 2, 0, 0, 0, 0, 0]
    assert backends[0].missing == pytest.approx(sum(backends[0].spent.values()) * 5 / 3)


@pytest.mark.parametrize("rows", [1, 100])
def test_filled_in_randomizers_leave_ciphertexts(keys, rows):
    """What SP is sent still passes its checks and decrypts; of a small batch nothing is left out."""
    backend = Sampled(Threads(1), rows)
    vector = encrypt(FreshRandomizers(keys.public, backend=backend), range(4), backend=backend)
    assert keys.read(CipherVector.from_bytes(vector.to_bytes(), keys.public, max_count=4)) == [0, 1, 2, 3]
    assert bool(backend.missing) == (rows == 1)


def test_every_axis_has_its_points_and_every_role_its_time_and_memory(points):
    """Participant, SP and CSP, in processes of their own."""
    axes = {"parameters": [100, 400], "participants": [10, 40], "rewarded": [4], "lanes": [40], "key": [1536]}
    assert [(p.axis, p.x) for p in points] == [(axis, x) for axis, on in axes.items() for x in on]
    for point in points:
        names = [*SERVERS, "CSP: publish"]
        if point.axis in ("parameters", "key"):  # its own cost does not depend on how many there are
            names += ["participant: encrypt", "participant: read", "participant: memory, working"]
        assert all(point.figures[name].value > 0 for name in names)
    assert "INSECURE" in scale_result({}, SMALL, points).title


def test_bytes_grow_with_the_model_and_uploads_with_the_crowd(points):
    """Fitted exponents near 1 where a size is proportional."""
    sizes = exponents(points, "parameters", SMALL.axes)
    assert [sizes["upload"], sizes["SP to CSP"]] == pytest.approx([1, 1], abs=0.15)
    assert exponents(points, "participants", SMALL.axes)["stored uploads"] == pytest.approx(1)


def test_sampled_times_are_marked_and_whole_ones_are_not(points):
    """Adding has no powers to leave out; rewards are computed in full."""
    assert points[1].figures["SP: publish"].sample == "4 powers"
    assert not points[1].figures["SP: add"].sample
    assert all(not p.figures["SP: reward"].sample for p in points if p.axis == "rewarded")


def test_every_point_of_shares_has_the_time_and_memory_of_both_servers(shares):
    """Everyone's upload is in the average, or the run itself fails."""
    axes = {"parameters": [100, 2_000], "participants": [5, 20], "rewarded": [4]}
    assert [(p.axis, p.x) for p in shares] == [(axis, x) for axis, on in axes.items() for x in on]
    for point in shares:
        assert all(point.figures[name].value > 0 for name in (*SERVERS, "CSP: round"))
        assert point.counts["requests"] == (6 if point.axis == "rewarded" else 2)
    assert shares[-1].figures["KGC: deal"].value > 0
    assert shares[-1].figures["dealt"].value > shares[0].figures["upload"].value


def test_files_hold_the_run(points, tmp_path):
    """JSON that parses, tables with exponents, a picture."""
    written = {path.suffix: path for path in output.write_files(scale_result({}, SMALL, points), tmp_path)}
    assert set(json.loads(written[".json"].read_text())["exponents"]) == set(SMALL.axes)
    page = written[".md"].read_text()
    assert "| exponent |" in page
    assert written[".svg"].stat().st_size > 1_000


@pytest.mark.parametrize("profile", ["hardened", "shares"])
def test_the_command_prints_what_the_run_gave(points, shares, monkeypatch, profile):
    results = {"ScaleSettings": (SMALL, points), "SharesScaleSettings": (SHARES, shares)}
    monkeypatch.setattr(measured, "bench_scale", lambda chosen, **_: scale_result({}, *results[type(chosen).__name__]))
    done = CliRunner().invoke(command.app, ["scale", "--profile", profile, "--quick", "--json"])
    found = json.loads(done.stdout)
    assert len(found["points"]) == len(points if profile == "hardened" else shares)
    assert found["exponents"]["participants"]["stored uploads"] == pytest.approx(1)


@pytest.mark.parametrize("words", [["scale"], ["load"]])
def test_another_profile_is_refused_by_name(words):
    """Before anything is measured."""
    done = CliRunner().invoke(command.app, [*words, "--profile", "paper"])
    assert done.exit_code == 2
    assert "'paper'" in done.output


def test_a_role_that_dies_is_named(capfd):
    with pytest.raises(ProtocolError, match="SP ended with exit code 1"):
        ChildRole({"role": "sp", "rows": 1}).figures()
    assert "KeyError" in capfd.readouterr().err
