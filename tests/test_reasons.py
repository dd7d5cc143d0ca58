"""Codes of reasons: the same in both languages, said in each of them, and no sentence of theirs anywhere else."""

import re
from pathlib import Path

import pytest

import crowdfl
from crowdfl.errors import FormatError
from crowdfl.reasons import Reason

PACKAGE = Path(crowdfl.__file__).parent
CATALOGUES = {code: PACKAGE / "web" / "common" / "text" / f"{code}.js" for code in ("en", "de", "zh")}
SOURCES = [
    path
    for path in sorted([*PACKAGE.rglob("*.py"), *PACKAGE.rglob("*.js")])
    if path != PACKAGE / "reasons.py" and not {"text", "vendor"} & set(path.relative_to(PACKAGE).parts)
]


def said(code: str) -> dict[str, str]:
    text = CATALOGUES[code].read_text(encoding="utf-8")
    (section,) = re.findall(r"^  why: \{\n(.*?)^  \},", text, re.DOTALL | re.MULTILINE)
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


def test_phones_know_the_same_reasons():
    text = (PACKAGE / "web" / "phone" / "protocol" / "reasons.js").read_text(encoding="utf-8")
    listed = re.sub("//.*", "", text.partition("REASONS = ")[2].partition("]")[0])
    assert re.findall(r'"(\w+)"', listed) == [str(one) for one in Reason]


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
    with pytest.raises(FormatError, match="no code of a Reason"):
        Reason(wrong)
