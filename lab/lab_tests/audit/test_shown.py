"""What `crowdfl audit` prints."""

import pytest
from typer.testing import CliRunner

from crowdfl.cli.main import app
from crowdfl_lab.audit import command
from crowdfl_lab.audit.finding import Finding, Verdict
from crowdfl_lab.audit.printed import demonstrate

LONG = Finding(
    "isolation",
    "2, 11",
    "a participant's model, by a requester that chooses the crowd, with one reader",
    ("requester",),
    "hardened, no guard",
    "30 of 30 weights to 6 decimals, correlation 1.0000, by RepeatedDivisors",
    5.68e-07,
    8.42e103,
    "root mean square error of a weight; blind: all zeros",
    Verdict.GUESS,
    "min_participants = 3; the phone takes part from 5 on: TooFewParticipants",
)


@pytest.mark.parametrize("width", [80, 120])
def test_no_word_of_a_finding_is_cut(monkeypatch, width):
    """At 80 columns as at more, and whatever was found is there."""
    findings = [*demonstrate(), LONG]
    monkeypatch.setattr(command, "_findings", lambda _scale, _say: iter(findings))
    monkeypatch.setenv("COLUMNS", str(width))
    shown = CliRunner().invoke(app, ["audit", "--quick"])
    assert shown.exit_code == 0, shown.output
    assert max(map(len, shown.stdout.splitlines())) <= width
    assert [line.split()[-2] for line in shown.stdout.splitlines() if "what, by whom" in line] == ["verdict"]
    words = shown.stdout.split()
    for finding in findings:
        told = (
            finding.title,
            finding.subject,
            finding.verdict,
            f"{finding.recovered}; {finding.measure}; {finding.note}",
        )
        assert [word for text in told for word in text.split() if word not in words] == []
        assert f"{finding.error:.3g}" in words
