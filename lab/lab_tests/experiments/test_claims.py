"""The page of claims follows from stored numbers; times of a busy machine are not published."""

import csv
import io
import json
import shutil
from pathlib import Path

import pytest

from crowdfl.errors import SettingsError
from crowdfl_lab import timing
from crowdfl_lab.experiments import claims
from crowdfl_lab.experiments.experiment import CLAIMS, publish, said_of
from crowdfl_lab.timing import Disturbance, disturbed_call

LAB = Path(__file__).parents[2]
RESULTS = LAB / "figures" / "experiments"


@pytest.fixture
def stored(tmp_path):
    """A copy of what is committed, to be altered."""
    shutil.copytree(RESULTS, tmp_path / "experiments")
    shutil.copy(LAB / "figures" / "incentives.csv", tmp_path)
    return tmp_path / "experiments"


def alter(folder: Path, name: str, change) -> None:
    path = folder / name / f"{name}.csv"
    rows = list(csv.DictReader(path.read_text().splitlines()))
    for row in rows:
        change(row)
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    path.write_text(text.getvalue())


def verdict(folder: Path, name: str) -> bool | None:
    return next(one for one in claims.judged(folder) if one.printed.name == name).found.holds


def test_every_claim_is_decided_by_code_and_every_decision_is_of_a_claim():
    assert {claim.name for claim in CLAIMS} == set(claims._DECIDED)
    assert {claim.of for claim in CLAIMS} == set(claims._TITLES)


def test_the_committed_page_is_what_the_command_makes_of_the_committed_results(tmp_path):
    shutil.copytree(LAB / "figures", tmp_path / "figures")
    assert claims.publish_page(tmp_path).read_text() == (LAB / "docs" / "claims.md").read_text()


def test_claims_that_fail_are_said_to_fail():
    """Figure 3's NN, figure 7(a)'s earners, figure 5(b)'s encrypting, figure 7(b)'s sum: no word hides them."""
    failing = {one.printed.name for one in claims.judged(RESULTS) if one.found.holds is False}
    assert {"fig3 nn", "fig7a shares", "fig7a hardened", "fig5 encrypting", "fig7b both", "fig4 motivate"} <= failing
    text = (LAB / "docs" / "claims.md").read_text()
    assert text.count("**fails**") == len(failing)


@pytest.mark.parametrize(
    ("claim", "table", "change"),
    [
        ("fig3 nn", "fig3", lambda row: row.update(accuracy="0.1", f1="0.1") if row["scheme"] == "NN" else None),
        ("table3 accuracy", "table3", lambda row: row.update(accuracy="0.5")),
        ("fig7a shares", "fig7", lambda row: row.update(reward=_growing(row)) if row["participant"] else None),
        ("fig5 encrypting", "fig5", lambda row: row.update(slope="1.0")),
        ("fig7b both", "fig7", lambda row: row.update(slope="1.0" if row["scheme"] == "paper" else "2.0")),
        ("fig4 motivate", None, None),
    ],
)
def test_a_claim_that_fails_holds_where_the_numbers_say_so(stored, claim, table, change):
    assert verdict(stored, claim) is False
    if table is None:
        path = stored.parent / "incentives.csv"
        rows = list(csv.DictReader(path.read_text().splitlines()))
        path.write_text("cheat,equal,distance\n" + "".join(f"{row['cheat']},5.9 / 11,5.9 / 11\n" for row in rows))
    else:
        alter(stored, table, change)
    assert verdict(stored, claim) is True


def _growing(row) -> str:
    """Who is even-numbered earns more in each round, who is not, less."""
    sign = 1 if int(row["participant"]) % 2 else -1
    return str(1 + sign * 0.1 * int(row["round"]))


@pytest.mark.parametrize(
    ("claim", "table", "change"),
    [
        (
            "table3 equal shares",
            "table3",
            lambda row: row.update(recall="0.9") if row["scheme"] == "PriFedAvg" else None,
        ),
        ("fig6 averaging", "fig6", lambda row: row.update(slope="1.0")),
        ("table4 PriFedAvg SP", "table4", lambda row: row.update(counted="9") if row["operation"] == "PAdd" else None),
        ("fig4 weight hardened", "fig4", lambda row: row.update(weight=row["distance"])),
    ],
)
def test_a_claim_that_holds_fails_where_the_numbers_say_so(stored, claim, table, change):
    assert verdict(stored, claim) is True
    alter(stored, table, change)
    assert verdict(stored, claim) is False


def test_what_is_not_stored_is_open_and_names_its_command(stored):
    shutil.rmtree(stored / "fig3")
    shutil.rmtree(stored / "gap", ignore_errors=True)
    assert verdict(stored, "fig3 nn") is None
    text = claims.write_page(stored).read_text()
    assert "not stored here: `crowdfl reproduce fig3` | open" in text
    assert "not stored here: `crowdfl reproduce gap`" in text


def test_a_whole_round_of_paper_is_shown_by_its_stages_where_it_is_stored(stored):
    heading = "## Figures 5(b), 6 and 7(b) at the paper's size\n\n"
    assert heading + "Not stored here: `crowdfl bench gpu --profile paper`." in claims.write_page(stored).read_text()
    made = json.loads((LAB / "figures" / "gpu-paper.json").read_text())
    average = next(part for part in made["parts"] if part["stage"] == "average")
    more = 100 - average["wall"]
    average["wall"] = 100
    (stored.parent / "gpu-paper.json").write_text(json.dumps(made))
    shown = claims.write_page(stored).read_text().partition(heading)[2].partition("##")[0]
    assert "| 6(a) | uploads are checked and added, SP and CSP average | 100.0 |" in shown
    assert f"| | the round | {made['rows'][0]['crowdfl']['value'] + more:.1f} |" in shown


@pytest.mark.parametrize(("others", "marked"), [(1.3, True), (0.1, False)])
def test_times_of_a_busy_machine_are_marked(stored, others, marked):
    made = stored / "fig6" / "made.json"
    made.write_text(json.dumps(json.loads(made.read_text()) | {"others": others}))
    found = {one.printed.name: one for one in claims.judged(stored)}
    assert ("busy" in found["fig6 averaging"].verdict) is marked
    assert "busy" not in found["table4 PriFedAvg SP"].verdict


@pytest.mark.parametrize("others", [0.3, None])
def test_times_of_a_busy_machine_are_not_published_unless_asked_for(stored, tmp_path, others):
    """Nothing of any of the experiments is copied then."""
    made = stored / "fig6" / "made.json"
    made.write_text(json.dumps(json.loads(made.read_text()) | {"others": others}))
    lab = tmp_path / "lab"
    with pytest.raises(SettingsError, match=r"fig6 are not published.*--busy-too"):
        publish(stored, ["table4", "fig6"], lab)
    assert not lab.exists()
    publish(stored, ["table4", "fig6"], lab, busy_too=True)
    assert json.loads((lab / "figures" / "experiments" / "fig6" / "made.json").read_text())["others"] == others


def test_times_of_a_quiet_machine_are_published(stored, tmp_path):
    made = stored / "fig6" / "made.json"
    made.write_text(json.dumps(json.loads(made.read_text()) | {"others": 0.1}))
    publish(stored, ["fig6"], tmp_path / "lab")
    copied = {path.name for path in (tmp_path / "lab" / "figures" / "experiments" / "fig6").iterdir()}
    assert copied == {"fig6.csv", "fig6.svg", "made.json"}


@pytest.mark.parametrize(("busy", "own", "cores", "quiet"), [(8.0, 2.0, 3.0, False), (2.1, 2.0, 0.05, True)])
def test_what_others_use_is_what_the_system_counted_less_our_own(monkeypatch, busy, own, cores, quiet):
    """Over two seconds, by clocks that a test sets."""
    used = iter((0.0, own))
    monkeypatch.setattr(timing.time, "process_time", lambda: next(used))
    monkeypatch.setattr(timing, "timed_call", lambda _action: (2.0, None))
    counted = iter((100.0, 100.0 + busy))
    monkeypatch.setattr(timing, "busy_seconds", lambda: next(counted))
    found, _ = disturbed_call(lambda: None)
    assert found.cores == pytest.approx(cores)
    assert found.quiet is quiet
    assert ("BUSY" in said_of(found)) is not quiet


def test_where_the_system_does_not_say_nothing_is_quiet():
    assert not Disturbance(1.0, None).quiet
    assert not (Disturbance(1.0, 0.0) + Disturbance(1.0, None)).quiet
    assert "BUSY OR NOT" in said_of(Disturbance(1.0, None))
