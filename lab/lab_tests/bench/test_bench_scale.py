"""`crowdfl bench scale`: its fits, its samples, its points, its way to a million."""

import json
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from crowdfl.crypto.compute import Threads
from crowdfl.crypto.paillier import pctd
from crowdfl.crypto.paillier.pctd import FreshRandomizers
from crowdfl.crypto.paillier.vector import CipherVector, combine, encrypt
from crowdfl.errors import ProtocolError
from crowdfl_lab.bench import command
from crowdfl_lab.bench.scale import run as measured
from crowdfl_lab.bench.scale.frames import ChildRole
from crowdfl_lab.bench.scale.growth import (
    REQUEST_LIMIT,
    RESPONSE_LIMIT,
    Rates,
    ScalePoint,
    exponent,
    exponents,
    plan_table,
)
from crowdfl_lab.bench.scale.role import MODULE, Sampled
from crowdfl_lab.bench.scale.run import ScaleSettings, measure_points, scale_result
from crowdfl_lab.report import output
from crowdfl_lab.report.results import Figure

SMALL = replace(
    ScaleSettings.quick(),
    parameters=(100, 400),
    crowds=(10, 40),
    crowd_parameters=60,
    lanes=40,
    key_bits=(1536, 1792),
    key_parameters=100,
    insecure_test_key=True,
)


@pytest.fixture(scope="module")
def points() -> list[ScalePoint]:
    """One small run for all the tests that only look."""
    return measure_points(SMALL)


@pytest.fixture
def keys() -> pctd.KeyPair:
    """A short key."""
    return pctd.keygen(256, insecure_test_key=True)


class TestFit:
    """Exponents."""

    @pytest.mark.parametrize("power", [0, 0.5, 1, 2])
    def test_a_power_law_is_found(self, power):
        """Whatever its factor."""
        x = [10, 100, 1_000, 10_000]
        assert exponent(x, [3.7 * value**power for value in x]) == pytest.approx(power, abs=1e-9)

    def test_a_fixed_cost_lowers_it(self):
        """Proportional growth beside a constant fits below 1."""
        x = [1, 10, 100, 1_000]
        assert 0.3 < exponent(x, [50 + value for value in x]) < 0.9


class TestSampled:
    """A backend that leaves out dear rows."""

    def test_the_first_rows_decrypt_and_the_rest_is_accounted_for(self, keys):
        """Both servers compute the same rows; the time of the others follows from theirs."""
        shares, backends = keys.private.split(), [Sampled(Threads(1), 3), Sampled(Threads(1), 3)]
        vector = encrypt(FreshRandomizers(keys.public), range(8), backend=Threads(1))
        halves = [vector.partial_decrypt(s, backend=b) for s, b in zip(shares, backends, strict=True)]
        opened = combine(halves[0], halves[1], backend=backends[1])
        assert [int.from_bytes(row.tobytes(), "big") for row in opened] == [0, 1, 2, 0, 0, 0, 0, 0]
        spent = sum(backends[0].spent.values())
        assert backends[0].missing == pytest.approx(spent * 5 / 3)

    def test_a_small_batch_is_computed_whole(self, keys):
        """Nothing is left out, nothing is added."""
        backend = Sampled(Threads(1), 100)
        vector = encrypt(FreshRandomizers(keys.public, backend=backend), range(4), backend=backend)
        assert backend.missing == 0
        assert [keys.private.decrypt(vector[i]) for i in range(4)] == [0, 1, 2, 3]

    def test_filled_in_randomizers_leave_ciphertexts(self, keys):
        """What SP is sent still passes its checks and decrypts."""
        backend = Sampled(Threads(1), 1)
        vector = encrypt(FreshRandomizers(keys.public, backend=backend), range(4), backend=backend)
        again = CipherVector.from_bytes(vector.to_bytes(), keys.public, max_count=4)
        assert [keys.private.decrypt(again[i]) for i in range(4)] == [0, 1, 2, 3]


class TestRun:
    """A run of small sizes."""

    def test_every_axis_has_its_points_and_every_role_its_time_and_memory(self, points):
        """Participant, SP and CSP, in processes of their own."""
        assert [(p.axis, p.x) for p in points] == [
            ("parameters", 100),
            ("parameters", 400),
            ("participants", 10),
            ("participants", 40),
            ("rewarded", 4),
            ("rewarded", 5),
            ("lanes", 40),
            ("key", 1536),
            ("key", 1792),
        ]
        for point in points:
            names = ["SP: add", "SP: publish", "CSP: publish", "SP: memory, working", "CSP: memory, working"]
            if point.axis in ("parameters", "key"):  # its own cost does not depend on how many there are
                names += ["participant: encrypt", "participant: read", "participant: memory, working"]
            assert all(point.figures[name].value > 0 for name in names)
        assert "INSECURE" in scale_result({}, SMALL, points).title

    def test_bytes_grow_with_the_model_and_uploads_with_the_crowd(self, points):
        """Fitted exponents near 1 where a size is proportional."""
        assert exponents(points, "parameters")["upload"] == pytest.approx(1, abs=0.15)
        assert exponents(points, "participants")["stored uploads"] == pytest.approx(1)
        assert exponents(points, "parameters")["SP to CSP"] == pytest.approx(1, abs=0.15)

    def test_sampled_times_are_marked_and_whole_ones_are_not(self, points):
        """Adding has no powers to leave out; rewards are computed in full."""
        large = points[1]
        assert large.figures["SP: publish"].sample == "4 powers"
        assert not large.figures["SP: add"].sample
        assert all(not p.figures["SP: reward"].sample for p in points if p.axis == "rewarded")

    def test_files_hold_the_run(self, points, tmp_path):
        """JSON that parses, tables with exponents, a picture."""
        pytest.importorskip("matplotlib")
        written = {path.suffix: path for path in output.write_files(scale_result({}, SMALL, points), tmp_path)}
        assert set(json.loads(written[".json"].read_text())["exponents"]) == {
            "parameters",
            "participants",
            "rewarded",
            "key",
        }
        page = written[".md"].read_text()
        assert "| exponent |" in page
        assert "A round of 1,000,000 participants" in page
        assert written[".svg"].stat().st_size > 1_000

    def test_the_command_prints_what_the_run_gave(self, points, monkeypatch):
        """One object on stdout."""
        monkeypatch.setattr(measured, "bench_scale", lambda *_, **__: scale_result({}, SMALL, points))
        done = CliRunner().invoke(command.app, ["scale", "--quick", "--json"])
        assert done.exit_code == 0
        assert len(json.loads(done.stdout)["points"]) == len(points)

    def test_a_role_that_dies_is_named(self, capfd):
        """Not waited for."""
        with pytest.raises(ProtocolError, match="SP ended with exit code 1"):
            ChildRole("sp", {"rows": 1}, MODULE).figures()
        assert "KeyError" in capfd.readouterr().err


def point(axis: str, x: int, crowd: int, buckets: int, **seconds: float) -> ScalePoint:
    """A made-up one."""
    counts = {"ciphertexts": 100, "buckets": buckets, "slots": 17, "to_csp": 0, "to_sp": 0}
    counts |= {"division": 2_000 * crowd, "lanes": 512 * 17 * crowd * buckets}
    return ScalePoint(axis, x, crowd, counts, {name.replace("_", ": "): Figure(v, "s") for name, v in seconds.items()})


class TestPlan:
    """A million participants on paper."""

    def points(self) -> list[ScalePoint]:
        """Of costs known beforehand: 1 ms to add a ciphertext, 2 s and 3 s a bucket, 5 s and 7 s a participant."""

        def reward(crowd: int, buckets: int) -> dict[str, float]:
            return {"SP_reward": crowd * (5 + 2 * buckets), "CSP_reward": crowd * (7 + 3 * buckets)}

        return [
            point("parameters", 10, 2, 1, SP_add=0.2, SP_publish=4, CSP_publish=6),
            point("rewarded", 5, 5, 4, **reward(5, 4)),
            point("rewarded", 20, 20, 4, **reward(20, 4)),
            point("lanes", 256, 5, 14, **reward(5, 14)),
        ]

    def test_rates_are_recovered(self):
        """What a bucket costs is told from what a participant costs."""
        rates = Rates.of(self.points())
        assert rates.add == pytest.approx(0.001)
        assert rates.publish == {"SP": 0.04, "CSP": 0.06}
        assert (rates.lane["SP"], rates.lane["CSP"]) == (pytest.approx(2), pytest.approx(3))
        assert (rates.person["SP"], rates.person["CSP"]) == (pytest.approx(5), pytest.approx(7))

    def test_every_number_has_its_formula_and_the_values_follow(self):
        """Spot checks by hand."""
        rows = {name: (formula, value) for name, formula, value in plan_table(self.points()).rows}
        assert rows["SP checks and adds, rewards off"] == (
            "1,000,000 * 7,291 * 1 ms",
            f"{1_000_000 * 7_291 * 0.001 / 3600:,.0f} core hours",
        )
        assert rows["uploads stored and received, rewards off"][1] == "3.73 TB"
        assert rows["participants whose divisions fit one request"][1] == f"{REQUEST_LIMIT // 2_000:,}"
        assert rows["participants whose lanes fit one answer"][1] == f"{RESPONSE_LIMIT // (17 * 512):,}"
        off, on = (rows[f"SP's cores within an hour, rewards {which}"][1] for which in ("off", "on"))
        assert int(off.replace(",", "")) == 2026  # 7,291,000 s to add, 292 s to average
        assert (
            int(on.replace(",", "")) == 44_332
        )  # twice 16,296,000 s, 652 s, and a million times 5 s and 61 buckets of 2 s
        assert all(formula for formula, _ in rows.values())

    def test_the_limits_are_the_services_own(self):
        """What CSP takes in one request, and SP in one answer."""
        csp_app = pytest.importorskip("crowdfl.services.apps.csp")
        transport = pytest.importorskip("crowdfl.services.client.transport")
        assert csp_app._REQUEST_LIMIT == REQUEST_LIMIT
        assert transport._RESPONSE_LIMIT == RESPONSE_LIMIT
