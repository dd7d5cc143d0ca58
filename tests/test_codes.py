"""Codes: the same in Python and JavaScript, said in each language, and no sentence of theirs anywhere else."""

import re
from pathlib import Path
from typing import get_args

import pytest

import crowdfl
from crowdfl.documents.signed import EndReason
from crowdfl.errors import FormatError
from crowdfl.reasons import Reason
from crowdfl.roles.participant.evidence import CspWord, SpWord
from crowdfl.roles.records import EndedBy, Tombstone

PACKAGE = Path(crowdfl.__file__).parent
CATALOGUES = {path.stem: path for path in sorted((PACKAGE / "web" / "common" / "text").glob("*.js"))}
SOURCES = [
    path
    for path in sorted([*PACKAGE.rglob("*.py"), *PACKAGE.rglob("*.js")])
    if path != PACKAGE / "reasons.py" and not {"text", "vendor"} & set(path.relative_to(PACKAGE).parts)
]


def said(code: str, name: str = "why") -> dict[str, str]:
    text = CATALOGUES[code].read_text(encoding="utf-8")
    (section,) = re.findall(rf"^  {name}: \{{\n(.*?)^  \}},", text, re.DOTALL | re.MULTILINE)
    return dict(re.findall(r'^    (\w+): "(.+)",$', section, re.MULTILINE))


@pytest.mark.parametrize("reason", Reason)
def test_a_reason_is_a_code_with_words_of_its_own(reason):
    assert re.fullmatch("[a-z_]{3,20}", reason)
    assert reason.name.lower() == reason.value
    assert " " in reason.words
    assert [one for one in Reason if one.words == reason.words] == [reason]


@pytest.mark.parametrize("code", CATALOGUES)
def test_every_reason_is_said_in_every_language_and_nothing_else_is(code):
    found = said(code)
    assert set(found) == {str(one) for one in Reason}
    assert len(set(found.values())) == len(found)


def listed(path: str, name: str) -> list[str]:
    """What a list in a phone's script has."""
    text = (PACKAGE / "web" / "phone" / path).read_text(encoding="utf-8")
    return re.findall(r'"(\w+)"', re.sub("//.*", "", text.partition(f"const {name} = ")[2].partition("]")[0]))


@pytest.mark.parametrize("code", CATALOGUES)
def test_what_servers_said_of_an_upload_is_said_in_every_language(code):
    text = (PACKAGE / "web" / "phone" / "text" / f"{code}.js").read_text(encoding="utf-8")
    for name, codes in (("said", SpWord), ("signed", CspWord)):
        (section,) = re.findall(rf"^  {name}: \{{\n(.*?)^  \}},", text, re.DOTALL | re.MULTILINE)
        assert re.findall(r"^    (\w+):", section, re.MULTILINE) == list(map(str, codes))


def test_phones_know_the_same_codes():
    assert listed("agent/evidence.js", "SAID") == list(map(str, SpWord))
    assert listed("agent/evidence.js", "SIGNED") == list(map(str, CspWord))
    assert listed("protocol/reasons.js", "REASONS") == list(map(str, Reason))
    assert listed("agent/status.js", "BY") == list(map(str, EndedBy))
    assert listed("agent/status.js", "WHY") == list(get_args(EndReason))


@pytest.mark.parametrize("code", CATALOGUES)
def test_whoever_ended_a_task_is_named_in_every_language(code):
    assert set(said(code, "by")) == set(map(str, EndedBy))
    assert set(said(code, "ending")) == {*get_args(EndReason), "because"}


def test_how_a_task_ended_is_kept_and_shown_by_code():
    end = Tombstone("cancelled", EndedBy.SP_OPERATOR, "the sensor lies\x1b[2J")
    assert end.coded() == {"why": "cancelled", "by": "sp_operator", "reason": "the sensor lies?[2J"}
    assert end.words() == "cancelled by the operator of SP: the sensor lies?[2J"
    with pytest.raises(FormatError, match="no EndedBy"):
        EndedBy("the operator of SP")


@pytest.mark.parametrize("reason", Reason)
def test_some_code_gives_each_reason(reason):
    givers = [path for path in SOURCES if f"Reason.{reason.name}" in path.read_text(encoding="utf-8")]
    assert givers, f"nothing says {reason}: take it out"


@pytest.mark.parametrize("reason", Reason)
def test_no_module_has_the_words_of_a_reason_but_the_catalogues(reason):
    """A sentence that stands elsewhere would soon be sent, kept or compared there."""
    shown = {reason.words.lower(), said("en")[reason].rstrip(".").lower()}
    holders = [path.name for path in SOURCES if any(one in path.read_text(encoding="utf-8").lower() for one in shown)]
    assert holders == []


@pytest.mark.parametrize("wrong", ["", "Broken_Seal", "BROKEN_SEAL", "broken seal", Reason.BROKEN_SEAL.words, None, 1])
def test_what_is_no_code_is_refused(wrong):
    with pytest.raises(FormatError, match="no Reason"):
        Reason(wrong)
