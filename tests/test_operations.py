"""docs/operations.md, the dashboard and the alert rules against the code: every event, every metric, every label, both ways."""

import ast
import json
import re
from pathlib import Path

import pytest
import yaml

from crowdfl.roles.records import PaymentState, RoundState, TaskState
from tests.http.processes import serving

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
LOGGED = ("info", "warning", "error", "critical")
TOLD = ("_tell", "events", "_events")
ELSEWHERE = ["closed", "ended", "refused"]  # states of a task at KGC and CSP
STATES = {  # of events that are named after a state
    "task": [*(value for name, value in vars(TaskState).items() if name.isupper()), *ELSEWHERE],
    "round": [str(state) for state in RoundState],
    "deposit": ["confirmed", "rejected"],
    "payment": [str(state) for state in PaymentState],
}


def events_in_the_code() -> set[str]:
    """What any module under services, storage, roles and web logs or tells, as it is written there."""
    found: set[str] = set()
    for folder in ("services", "storage", "roles", "web"):
        for path in sorted((ROOT / "src" / "crowdfl" / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if (
                    isinstance(node, ast.Call)
                    and node.args
                    and called(node) in (*LOGGED, *TOLD)
                    and not opens_a_log(node)
                ):
                    found |= named(node.args[0])
                if isinstance(node, ast.Call) and called(node) == "log_failure" and len(node.args) > 1:
                    found |= named(node.args[1])
                if isinstance(node, ast.Assign | ast.AnnAssign) and "failed" in ast.unparse(node).split(" = ")[0].split(
                    ":"
                ):
                    found |= named(node.value)  # of a worker's class
                if isinstance(node, ast.FunctionDef) and node.name == "_event":
                    found |= {one.value for one in ast.walk(node) if is_event(one)}
    return found


def is_event(node: ast.AST) -> bool:
    """A name that a function gives back."""
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) < 30


def opens_a_log(node: ast.Call) -> bool:
    """`logs.events("sp")` names a service."""
    return isinstance(node.func, ast.Attribute) and getattr(node.func.value, "id", "") == "logs"


def called(node: ast.Call) -> str:
    """The last part of a call's name."""
    function = node.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def named(node: ast.expr) -> set[str]:
    """An event's name, or those that an f-string makes."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return {node.value}
    if isinstance(node, ast.JoinedStr) and isinstance(node.values[0], ast.Constant):
        kind = str(node.values[0].value).strip()
        return {f"{kind} {state}" for state in STATES[kind]}
    return set()


def table(name: str) -> str:
    return PAGE.partition(f"<!-- {name}:")[2].partition(f"<!-- end of {name} -->")[0]


def test_the_page_lists_every_event_and_no_other():
    one = "(?:``.+?``|`[^`]+`)"  # before the roles that log it
    groups = re.findall(rf"({one}(?:, {one})*) \((?:all|KGC|SP|CSP)", table("events"))
    listed = {"".join(event).strip() for group in groups for event in re.findall("``(.+?)``|`([^`]+)`", group)}
    assert listed == events_in_the_code()


def metrics_listed() -> dict[str, set[str]]:
    found = re.findall(r"`(crowdfl_[a-z_]+)(?:\{([a-z,]+)\})?`", table("metrics"))
    return {name: set(filter(None, labels.split(","))) for name, labels in found}


def used_in(expression: str) -> dict[str, set[str]]:
    """The metrics of a PromQL expression, with the labels that it selects or groups by."""
    found: dict[str, set[str]] = {}
    groups = {one for part in re.findall(r"(?:by|without) ?\(([^)]*)\)", expression) for one in part.split(",")}
    for name, inner in re.findall(r"\b(crowdfl_[a-z_]+|up)\b(?:\{([^}]*)\})?", expression):
        labels = set(re.findall(r"([a-z_]+)\s*(?:=~|!~|!=|=)", inner))
        found.setdefault(name, set()).update(labels | {one.strip() for one in groups})
    return found


def rules() -> list[dict]:
    """The alert rules."""
    parsed = yaml.safe_load((ROOT / "deploy" / "prometheus" / "alerts.yml").read_text(encoding="utf-8"))
    return [rule for group in parsed["groups"] for rule in group["rules"]]


def panels() -> list[dict]:
    """The dashboard's, those in rows included."""
    board = json.loads((ROOT / "deploy" / "grafana" / "crowdfl.json").read_text(encoding="utf-8"))
    return [panel for one in board["panels"] for panel in (one, *one.get("panels", ()))]


def expressions() -> list[str]:
    shown = [target["expr"] for panel in panels() for target in panel.get("targets", ())]
    return [*(rule["expr"] for rule in rules()), *shown]


ADDED_BY_PROMETHEUS = {"job", "instance", "le"}


@pytest.fixture(scope="module")
def shown(tmp_path_factory) -> dict[str, set[str]]:
    """What the three services show at /metrics after a request, by the names that Prometheus stores, with their labels."""
    found: dict[str, set[str]] = {}
    with serving(tmp_path_factory.mktemp("metrics")) as platform:
        texts = [
            platform.metrics(name) for name in ("kgc", "sp", "csp") for _ in range(2)
        ]  # the second shows the first
    for text in texts:
        for name, labels in re.findall(r"^(crowdfl_\w+)(?:\{([^}]*)\})? ", text, re.M):
            found.setdefault(name, set()).update(re.findall(r'(\w+)="', labels))
        for name in re.findall(r"^# TYPE (crowdfl_\w+) ", text, re.M):  # one without a value yet
            found.setdefault(name, set())
    return found


def test_every_expression_names_metrics_and_labels_that_the_services_show(shown):
    """A metric that is renamed must not leave an alert that never fires."""
    used = [used_in(expression) for expression in expressions()]
    assert len(used) > 20
    listed = metrics_listed()
    for name, labels in ((name, labels) for one in used for name, labels in one.items() if name != "up"):
        assert name in shown, name
        allowed = shown[name] | listed.get(name, set()) | listed.get(name.removesuffix("_bucket"), set())
        assert labels <= allowed | ADDED_BY_PROMETHEUS, (name, labels)


def test_the_page_lists_every_metric_that_the_services_show(shown):
    """And no other; labels alike, where a service has a value to show."""
    listed = metrics_listed()
    series = ("_created", "_bucket", "_count", "_sum")
    names = {name for name in shown if not name.endswith(series)}
    counters = {name for name in names if f"{name}_total" in listed}  # the type's name; its series ends in _total
    assert names - counters == set(listed)
    for name in names - counters:
        assert shown[name] <= listed[name], name


def test_every_alert_says_what_it_means_and_where_it_is_explained():
    """The section exists; each of the troubles of an operator has an alert."""
    headings = {
        re.sub(r"[^a-z0-9 -]", "", line.lower()).replace(" ", "-") for line in re.findall("^#+ (.*)$", PAGE, re.M)
    }
    for rule in rules():
        page, _, section = rule["annotations"]["runbook"].partition("#")
        assert (page, section in headings, rule["alert"] in PAGE) == ("docs/operations.md", True, True), rule["alert"]
        assert rule["annotations"]["summary"]
        assert rule["labels"]["severity"] in ("page", "ticket")
    assert len({rule["alert"] for rule in rules()}) == len(rules()) >= 10


def test_the_example_for_prometheus_loads_the_rules_and_sends_a_token_over_tls():
    """To each of the three services."""
    parsed = yaml.safe_load((ROOT / "deploy" / "prometheus" / "prometheus.yml").read_text(encoding="utf-8"))
    assert parsed["rule_files"] == ["alerts.yml"]
    jobs = parsed["scrape_configs"]
    assert {job["job_name"] for job in jobs} == {"crowdfl-kgc", "crowdfl-sp", "crowdfl-csp"}
    assert all(job["scheme"] == "https" and job["authorization"]["credentials_file"] for job in jobs)


def test_panels_are_placed_beside_each_other():
    """Each with a title, a query and a place of its own."""
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels()]
    assert len(set(places)) == len(places) >= 12
    assert all(panel["title"] and panel["targets"] for panel in panels())
