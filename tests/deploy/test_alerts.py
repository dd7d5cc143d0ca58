"""The alert rules in Prometheus' own hands: each fires from what a service in its trouble shows, alone; none of a well one."""

import datetime
import json
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from fastapi import FastAPI
from prometheus_client.parser import text_string_to_metric_families

from crowdfl.errors import StoreUnavailable
from crowdfl.roles.records import PaymentState, StoredPayment, StoredTask
from crowdfl.services.http import app_factory, tls
from crowdfl.services.http.app_factory import add_certificate_gauge
from crowdfl.services.http.auth import Tokens
from tests import subprocesses
from tests.deploy.parts import DEPLOY
from tests.web.sites import browsing, opened_sp, sp_settings

pytestmark = pytest.mark.second
RULES = DEPLOY / "prometheus" / "alerts.yml"
ALERTS = [rule["alert"] for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]
JOB, MINUTES = "crowdfl-sp", 120
TASK, OTHER, DAY = "a" * 64, "c" * 64, 86400.0
GIB = 2**30


@dataclass
class Service:
    """An SP as it is opened, and what Prometheus reads of it."""

    app: FastAPI
    folder: Path
    patch: pytest.MonkeyPatch
    is_up: bool = True

    def __post_init__(self) -> None:
        self.parts = self.app.state.parts
        self.sp = self.parts.sp
        self._token = Tokens(self.folder / "sp" / "tokens.json").add("monitoring", "monitor")
        self.http = browsing(self.app)

    def scrape(self) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
        """One number for each series; moments count from 1970 there, where the clock of Prometheus' tests begins."""
        answer = self.http.get("/metrics", headers={"Authorization": f"Bearer {self._token}"})
        assert answer.status_code == 200, answer.text
        samples = [one for family in text_string_to_metric_families(answer.text) for one in family.samples]
        found = {(one.name, tuple(sorted({**one.labels, "job": JOB}.items()))): one.value for one in samples}
        ends = {place for place in found if place[0] == "crowdfl_certificate_expires_seconds"}
        found |= {place: found[place] - time.time() for place in ends}
        return {**found, ("up", (("job", JOB),)): float(self.is_up)}

    def certify(self, days: float) -> None:
        """A certificate that ends in so many days."""
        authority = tls.make_ca(self.folder)
        began = datetime.datetime.now(datetime.UTC)
        lasts = tls.require_usable(tls.make_server_certificate(self.folder, authority, "new", now=began))
        spent = lasts.not_valid_after_utc - began - datetime.timedelta(days=days)
        files = tls.make_server_certificate(self.folder, authority, "tls", now=began - spent)
        add_certificate_gauge(self.app.state.metrics, files.certificate)

    def disk(self, free: int) -> None:
        usage = shutil._ntuple_diskusage(100 * GIB, 100 * GIB - free, free)
        self.patch.setattr(app_factory.shutil, "disk_usage", lambda _folder: usage)

    def answer(self, times: int, failure: Exception | None) -> None:
        """Requests, each with this failure of the store."""
        real = self.sp.store.task

        def task(name: str) -> object:
            if failure is not None:
                raise failure
            return real(name)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(type(self.sp.store), "task", lambda _self, name: task(name))
            for _ in range(times):
                self.http.get(f"/v1/tasks/{OTHER}")

    def lose_a_peer(self) -> None:
        breaker = self.parts.peers[0]
        for _ in range(breaker.failures):
            breaker.admit()
            breaker.record(answered=False)

    def jump(self) -> None:
        """The clock, by a day."""
        now = time.time
        self.sp.core.clock_is_sure()
        self.patch.setattr("crowdfl.services.client.transport.time.time", lambda: now() + DAY)
        self.sp.core.clock_is_sure()


def _payment(service: Service) -> None:
    service.sp.store.add_payment(StoredPayment(TASK, "b" * 20, 1, 5, 0, PaymentState.UNKNOWN, 0.0))


def _wait(service: Service) -> None:
    service.sp._due_since[TASK] = service.sp.clock.now() - 7200


CAUSES: dict[str, Callable[[Service], object]] = {
    "CrowdflDown": lambda service: setattr(service, "is_up", False),
    "CrowdflPeerDown": Service.lose_a_peer,
    "CrowdflTaskBackingOff": lambda service: service.sp.options.failures.record_failure(TASK, ValueError("x")),
    "CrowdflTaskUnreadable": lambda service: service.sp.store.add_task(StoredTask(TASK, "nothing", "", "running")),
    "CrowdflRoundStuck": _wait,
    "CrowdflPaymentUnknown": _payment,
    "CrowdflUploadDamaged": lambda service: setattr(service.sp.steps, "dropped", 1),
    "CrowdflClockDoubtful": Service.jump,
    "CrowdflDiskNearlyFull": lambda service: service.disk(9 * GIB),
    "CrowdflCertificateEnds": lambda service: service.certify(days=7),
    "CrowdflConnectionsTurnedAway": lambda service: service.app.state.metrics.turned_away.labels("address").inc(100),
    "CrowdflErrors": lambda service: service.answer(2, RuntimeError("x")),
    "CrowdflUnavailable": lambda service: service.answer(10, StoreUnavailable("x")),
}


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    """Well: with room, a year's certificate, and people who look."""
    with opened_sp(sp_settings(tmp_path)) as app:
        found = Service(app, tmp_path, monkeypatch)
        found.disk(50 * GIB)
        found.answer(1, StoreUnavailable("x"))  # so that the series are there before
        found.answer(1, RuntimeError("x"))
        yield found


def check_by_promtool(*arguments: object) -> None:
    if shutil.which("promtool") is None:
        pytest.skip("promtool is not installed: the rules are read as YAML only (Debian: apt-get install prometheus)")
    done = subprocesses.run(["promtool", *map(str, arguments)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def require_firing(service: Service, cause: Callable[[Service], object], wanted: list[str], folder: Path) -> None:
    """What is read twice, with trouble in between, goes on so for two hours: then these alerts fire, and no other."""
    before = service.scrape()
    cause(service)
    service.answer(100, None)  # people go on looking, a hundred times a minute
    after = service.scrape()
    counted = ("_total", "_count", "_sum", "_bucket")
    series = []
    for (name, labels), value in after.items():
        grows = value - before.get((name, labels), 0.0) if name.endswith(counted) else 0.0
        written = ", ".join(f"{label}={json.dumps(text)}" for label, text in labels)
        series.append({"series": f"{name}{{{written}}}", "values": f"{value:.6f}+{grows:.6f}x{MINUTES}"})
    firing = {"expr": 'count by (alertname) (ALERTS{alertstate="firing"})', "eval_time": f"{MINUTES}m"}
    firing["exp_samples"] = [{"labels": f'{{alertname="{one}"}}', "value": 1} for one in wanted]
    test = {"interval": "1m", "input_series": series, "promql_expr_test": [firing]}
    shutil.copy(RULES, folder / RULES.name)
    (folder / "test.yml").write_text(
        yaml.safe_dump({"rule_files": [RULES.name], "evaluation_interval": "1m", "tests": [test]})
    )
    check_by_promtool("test", "rules", folder / "test.yml")


def test_the_rules_are_what_prometheus_understands():
    check_by_promtool("check", "rules", RULES)
    check_by_promtool("check", "config", "--syntax-only", DEPLOY / "prometheus" / "prometheus.yml")


def test_no_alert_fires_of_a_service_that_is_well(service: Service, tmp_path: Path):
    require_firing(service, lambda service: service.certify(days=200), [], tmp_path)


@pytest.mark.parametrize("alert", ALERTS)
def test_an_alert_fires_from_what_a_service_in_its_trouble_shows(alert: str, service: Service, tmp_path: Path):
    require_firing(service, CAUSES[alert], [alert], tmp_path)


def test_every_alert_has_a_cause():
    assert list(CAUSES) == ALERTS
