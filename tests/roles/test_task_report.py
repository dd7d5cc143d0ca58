"""A campaign's report: what the requester knows of it, in each language, as text and as a page."""

import json
import re
from dataclasses import replace

import pytest

from crowdfl.campaigns.report import TaskReport
from crowdfl.catalogues import LANGUAGES, Sentences, catalogue
from crowdfl.errors import SettingsError
from crowdfl.reasons import Reason, Void
from crowdfl.settings import AskerSettings, ConsentSettings, TextsSettings
from tests.hosts import BUDGET, Desk

STUDY = {
    "who": AskerSettings(name="Gait <Lab>", institution="University", approval="EK 2026/7"),
    "consent": ConsentSettings(version="2", text="We measure how you move."),
    "texts": {"de": TextsSettings(purpose="Gehen erkennen", consent="Wir messen.", words={})},
}
SHARES = {"profile": "shares", "decimals": 6, "clip": 16.0, "max_participants": 6, "pay": "equal"}


@pytest.fixture
def desk(tmp_path) -> Desk:
    """Two rounds, in the first of which one withdraws and one stays away."""
    desk = Desk(tmp_path, study=STUDY, payer=bytes(32), **SHARES)
    for number in range(5):
        person = desk.new_participant(desk.task, str(number))
        person.agree = "2"
        person.join(desk.requester.invite(desk.task, 1, 1000.0)[0])
        desk.people[str(number)] = person
    desk.requester.fund(desk.task, 2 * BUDGET, "all")
    desk.run()
    desk.upload(desk.crowd[:4])
    desk.sp.people.withdraw(desk.task, desk.crowd[3].keys.who)
    return desk


def report_of(desk: Desk) -> TaskReport:
    return TaskReport.of(desk.requester, desk.task)


def test_every_part_says_what_is_known(desk):
    desk.later(10_000)
    text = report_of(desk).text()
    for said in (
        "which exercise",
        "Gait <Lab>, University",
        "5 people have joined: 5 by an invitation, 0 by the platform's list.",
        "Each phone has signed the whole text",
        "has not evaluated the model",
        "What people claimed is known once claims are through",
        "Round 1: 1 upload was left out. Its owner has withdrawn it.",
        "1 person has withdrawn: 1970-01-01.",
        "1 person who could have sent has sent in no round.",
        "What each party learnt",
    ):
        assert said in text, said
    (first,) = [line.split() for line in text.splitlines() if re.match(r" +1 +1970", line)]
    assert first[-6:] == ["rewarded", "5", "4", "1", "1", "3"]
    assert [line.split()[:4] for line in text.splitlines() if line.split()[1:3] == ["en", "5"]] == [
        ["2", "en", "5", "1"]
    ]


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_page_is_one_file_and_escapes_what_others_wrote(desk, language):
    page = report_of(desk).html(language, more="<section>more</section>")
    assert f'<html lang="{language}">' in page
    assert "Gait &lt;Lab&gt;, University" in page
    assert not re.search(r"<script|<link|src=|url\(", page)
    assert "<section>more</section>" in page
    assert ("Gehen erkennen" in page) is (language == "de")
    assert "{" not in re.sub(r"<style>.*?</style>", "", page, flags=re.DOTALL)


def test_what_is_evaluated_is_shown_by_round_and_class_without_the_requester_s_folders(desk):
    classes = {"walk": {"windows": 6, "precision": 1.0, "recall": 0.5, "f1": 0.6}}
    found = {"accuracy": 0.75, "loss": 0.5, "windows": 12, "classes": classes}
    desk.requester.keep_scores(desk.task, ["csv:/home/me/held out"], {1: found})
    desk.requester.keep_scores(desk.task, ["csv:/home/me/held out"], {0: found | {"accuracy": 0.25}})
    text = report_of(desk).text()
    assert "on 12 windows of data that the requester named: csv:held out." in text
    assert "/home/me" not in text
    lines = [line.split() for line in text.splitlines()]
    assert ["0", "25.0%", "50.0%"] in lines
    assert ["1", "75.0%", "50.0%"] in lines
    desk.requester.keep_scores(desk.task, ["csv:other"], {1: found})
    assert list(desk.requester.scores(desk.task)["rounds"]) == ["1"]  # of other data nothing is mixed in


def test_what_the_two_servers_say_of_the_money_stands_side_by_side(desk):
    report = report_of(desk)
    settled = {"earned": 3_000_000, "attested": 2_000_000, "difference": 1_000_000, "attested_complete": False}
    text = replace(report, books=dict(report.books) | settled).text()
    assert "DIFFERENCE: the platform says to have paid 1.00 EUR more" in text
    assert "may have attested more than it knows" in text
    agreeing = replace(report, books=dict(report.books) | settled | {"difference": 0, "attested_complete": True})
    assert "is the one that the second server has signed" in agreeing.text()
    assert "72,00 EUR" in report.text("de")


def test_a_void_round_and_an_early_end_are_said_with_their_reasons(desk):
    desk.requester.order(desk.task, "cancel")
    text = report_of(desk).text()
    assert "The campaign was cancelled by the requester." in text
    assert "Round 1 was void, with 4 uploads: The task ended while it was open." in text


def test_a_campaign_in_which_nothing_went_wrong_says_so(tmp_path):
    desk = Desk.funded(tmp_path, 3, **SHARES | {"max_participants": 3})
    desk.play(2)
    text = report_of(desk).text()
    assert "Nothing of this kind is known" in text
    assert "has no consent text" in text


def test_who_missed_a_round_and_came_back_is_not_passed_over(tmp_path):
    desk = Desk.funded(tmp_path, 4, **SHARES | {"rounds": 3, "min_participants": 3})
    desk.upload(desk.crowd[:3])
    desk.later(10_000)
    desk.play()
    assert "1 person has missed a round, and sent in a later one." in report_of(desk).text()
    assert "Nothing of this kind" not in report_of(desk).text()


def test_programs_and_notebooks_get_the_same(desk):
    report = report_of(desk)
    values = json.loads(json.dumps(report.values()))
    assert (values["state"], values["paid_in"], len(values["people"])) == ("running", 2 * BUDGET, 5)
    assert report.rounds[0] == {"number": 1, "state": "open", "uploads": 3}
    assert report._repr_html_().count("<h2>") + 1 == str(report).count("\n== ")  # one is folded


def test_the_table_of_disclosures_is_that_of_these_settings(desk):
    text = report_of(desk).text()
    assert "\nPayer\n" in text
    assert "Readers, where speed" not in text
    unpaid = replace(report_of(desk).definition, payer=b"")
    assert "\nPayer\n" not in replace(report_of(desk), definition=unpaid).text()


# Its sentences.


def flat(language: str) -> dict[str, object]:
    return {f"{s}.{name}": text for s, texts in catalogue("report", language).items() for name, text in texts.items()}


def places(text: object) -> set[str]:
    return set(re.findall(r"\{\w+\}", json.dumps(text)))


@pytest.mark.parametrize("language", ["de", "zh"])
def test_every_language_says_the_same_with_the_same_values(language):
    english, own = flat("en"), flat(language)
    assert own.keys() == english.keys()
    for key, text in own.items():
        assert places(text) == places(english[key]), key
        assert isinstance(text, str) is isinstance(english[key], str), key
        assert isinstance(text, str) or set(text) == ({"other"} if language == "zh" else {"one", "other"}), key


def test_a_language_that_reports_do_not_have_is_refused():
    with pytest.raises(SettingsError, match="choose en, de, zh"):
        Sentences("fr", "report")


def test_every_code_has_words_in_a_report():
    said = Sentences("de", "report")
    assert [code for code in Void if not said.knows(f"void.{code}")] == []
    assert [code for code in Reason if not said.knows(f"why.{code}")] == []
