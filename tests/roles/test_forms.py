"""A study outlives a release: whoever reads a later form reads every earlier one, and a later form is refused by name, alone.

`next_version` stands for a release after this one: one more setting, one more field of a receipt and of a message.
"""

import contextlib
import json
import re
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from crowdfl.crypto.signing import SigningKey, verify
from crowdfl.documents import forms, signed
from crowdfl.documents.envelope import Envelope
from crowdfl.documents.forms import ADDED, completed_file, form_line
from crowdfl.documents.invitations import Invitation
from crowdfl.documents.signed import Definition, Receipt, TaskEnd
from crowdfl.errors import DocumentError, FormTooNew, SettingsError, TaskUnreadable, UnsupportedVersion
from crowdfl.protocols.messages import Limits, Message, _fields_of, added
from crowdfl.protocols.shares.round.average import RoundRecord
from crowdfl.roles import records
from crowdfl.roles.records import RoundState
from crowdfl.services.client.opening import read_invitation
from crowdfl.settings import RequesterSettings, SpSettings, TaskFile, TaskSettings, TrainingSettings
from crowdfl.storage.settings_file import read_file
from crowdfl.web import __file__ as web_file
from tests.corpus.fields import FROZEN, _below, _is_own, described
from tests.hosts import BUDGET, Desk, small_definition

FIXED, TODAY = 3, 7  # what the new setting is in form 1 for ever, and what it is by default in the next version


class NextSettings(TaskSettings):
    brand_new: int = TODAY


@contextlib.contextmanager
def next_version():
    """Where documents are read: caches hold what another version has read."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(ADDED, "definition", ({"settings.brand_new": FIXED},))
        patch.setattr(signed, "TaskSettings", NextSettings)
        records._opened.cache_clear()
        yield
    records._opened.cache_clear()


def read_as_next(definition: str) -> Definition:
    with next_version():
        return Definition.open(definition)


def with_new(definition: Definition) -> Definition:
    return replace(definition, settings=NextSettings(**dict(definition.settings)))


def test_every_document_names_its_form():
    key = SigningKey.fresh()
    for document in (
        Receipt("t", 1, "x", "d", late=False),
        TaskEnd("t", "settled", 1.0),
        Invitation("t", "0" * 32, 1, key.public, 1.0),
    ):
        assert Envelope.parse(document.sign(key), document.kind).body()["form"] == 1
        assert type(document).open(document.sign(key), key.public) == document
    definition = replace(small_definition(TaskSettings.of(budget=None)), requester=key.public)
    assert definition.body()["form"] == 1


def test_a_later_version_reads_form_1_with_its_fixed_defaults_and_the_same_id(tmp_path):
    desk = Desk(tmp_path)
    document = desk.sp.store.task(desk.task).definition
    found = read_as_next(document)
    assert found.settings.brand_new == FIXED != NextSettings.model_fields["brand_new"].default
    assert found.task == desk.task
    assert (
        replace(found, settings=desk.sp.store.task(desk.task).opened.settings).body()
        == Definition.open(document).body()
    )


def test_what_training_leaves_out_means_what_it_did(monkeypatch):
    """A definition holds what its requester has written, and devices fill in the rest."""
    definition = small_definition(TaskSettings.of(budget=None))
    monkeypatch.setitem(ADDED, "definition", ({"training.rate": 0.5, "training.epochs": 9},))
    said = definition.body() | {"form": 1, "training": {"rate": 0.25}}
    assert Definition.from_body(said).training == {"rate": 0.25, "epochs": 9}
    assert Definition.from_body(said | {"form": 2}).training == {"rate": 0.25}


def test_form_1_has_no_field_of_form_2(monkeypatch):
    """Or one document would say two things."""
    body = small_definition(TaskSettings.of(budget=None)).body()
    monkeypatch.setitem(ADDED, "definition", ({"settings.brand_new": FIXED, "texts.*.more": ""},))
    with pytest.raises(DocumentError, match=r"brand_new.*its form does not have"):
        Definition.from_body(body | {"settings": {**body["settings"], "brand_new": 5}})


def test_a_field_of_every_translation_is_filled_in(monkeypatch):
    monkeypatch.setitem(ADDED, "x", ({"texts.*.more": "-"}, {"texts.*.yet": 1, "end": None}))
    said = {"form": 1, "texts": {"de": {"a": 1}, "zh": {}}}
    assert forms.completed("x", said) == {
        "texts": {"de": {"a": 1, "more": "-", "yet": 1}, "zh": {"more": "-", "yet": 1}},
        "end": None,
    }
    assert forms.completed("x", {"form": 3, "texts": {"de": {}}}) == {"texts": {"de": {}}}
    assert said == {"form": 1, "texts": {"de": {"a": 1}, "zh": {}}}


@pytest.mark.parametrize("form", [0, -1, "1", None, True, 1.0])
def test_what_is_no_form_is_refused(form):
    with pytest.raises(DocumentError, match="does not name its form"):
        Definition.from_body(small_definition(TaskSettings.of(budget=None)).body() | {"form": form})


def test_a_task_of_a_later_form_is_refused_alone_and_every_other_goes_on(tmp_path):
    """Both in one database, as after an upgrade and a way back that no backup covers."""
    desk = Desk.funded(tmp_path, 3)
    with next_version():
        desk.restart()
        later = desk.create(with_new(replace(small_definition(desk.settings), purpose="later")), desk.initial)
        desk.requester.fund(later, desk.settings.rounds * BUDGET, "later")
        desk.play()
        assert desk.states() == ["rewarded", "open"]  # the task of form 1, by the next version
        assert Envelope.parse(desk.sp.store.task(later).definition, "definition").body()["form"] == 2
    desk.restart()
    (unread,) = desk.sp.store.unreadable()
    assert unread.task == later
    assert "FormTooNew" in unread.why
    assert "reads forms up to 1" in unread.why
    for _ in range(4):
        with contextlib.suppress(TaskUnreadable):
            desk.sp.tick()
    desk.play(desk.settings.rounds)
    assert set(desk.states()) == {RoundState.REWARDED}
    for person in desk.crowd:
        person.claim()
    assert len(desk.sp.store.payments()) == 3


def test_kgc_and_sp_refuse_a_task_of_a_later_form_by_name(tmp_path):
    desk = Desk(tmp_path)
    with next_version():
        later = desk.create(with_new(replace(small_definition(desk.settings), purpose="later")), desk.initial)
        document = desk.sp.store.task(later).definition
    why = r"definition is of form 2, and CrowdFL \S+ reads forms up to 1: update CrowdFL"
    with pytest.raises(FormTooNew, match=why):
        desk.kgc.create_task(document)
    with pytest.raises(FormTooNew, match=why):
        Definition.open(document)


# What is frozen: tests/corpus/forms.json holds every field of form 1, and each default of what may be left out.


def changes(frozen: dict[str, object], today: dict[str, object], added: tuple[dict[str, object], ...]) -> list[str]:
    """What of a kind has changed since form 1 and no later form accounts for."""
    told = {path: value for later in reversed(added) for path, value in later.items()}
    wrong = [f"{path} is gone" for path in frozen if path not in today]
    wrong += [f"{path} is new" for path in today if path not in frozen and path not in told]
    for path, was in frozen.items():
        if path in told and told[path] != was:
            wrong.append(f"{path} was {was} in form 1, not {told[path]}")
        elif path in today and path not in told and today[path] != was:
            wrong.append(f"{path} is {today[path]} now, and was {was}")
    return wrong


def test_a_new_setting_or_default_needs_a_form():
    """A field of a definition, a document, a file or a message, or another default of what may be left out: `forms.ADDED`."""
    frozen, today = json.loads(FROZEN.read_text()), described()
    kinds = {kind: found for kind, found in frozen.items() if kind != "messages"}
    wrong = {kind: changes(kinds[kind], today[kind], ADDED.get(kind, ())) for kind in kinds}
    assert {kind: words for kind, words in wrong.items() if words} == {}
    assert today.keys() == frozen.keys(), "a kind is new: write its fields down"


def test_a_new_field_of_a_message_needs_a_form():
    """`messages.added`, last; a kind is never used for another thing."""
    forms_by_kind = {str(one.kind): one for one in _below(Message) if _is_own(one)}
    for kind, names in json.loads(FROZEN.read_text())["messages"].items():
        first = [part.name for part in _fields_of(forms_by_kind[kind], 2)]
        assert first == names, f"{forms_by_kind[kind].__name__}: a form has changed; later fields are `added`"


def test_what_is_frozen_would_tell():
    assert changes({"a": 1, "b": 2, "c": 3}, {"a": 1, "b": 5, "d": 4}, ({"e": 1},)) == [
        "c is gone",
        "d is new",
        "b is 5 now, and was 2",
    ]
    assert changes({"a": 1, "b": 2}, {"a": 4, "b": 2, "d": 4}, ({"a": 1}, {"d": 0, "a": 3})) == []
    assert changes({"a": 1}, {"a": 4}, ({"a": 2},)) == ["a was 1 in form 1, not 2"]


def test_phones_have_the_same_table():
    """As JSON in the page's source, of the kinds that phones read."""
    source = (Path(web_file).parent / "phone/protocol/forms.js").read_text()
    (literal,) = re.findall(r"^export const ADDED = (\{.*?\});$", source, re.MULTILINE | re.DOTALL)
    read = json.loads(FROZEN.read_text()).keys() - set(forms.FILES.values()) - {"messages"}
    assert json.loads(literal) == {kind: list(later) for kind, later in ADDED.items() if kind in read}


# Settings files.


def test_a_settings_file_of_form_1_keeps_its_defaults(monkeypatch, tmp_path):
    """What its owner left out is what it was when the file was written; without a number it is of form 1."""
    path = tmp_path / "settings.toml"
    text = 'kgc = "https://k:1"\nsp = "https://s:1"\nkgc_key = "' + "00" * 32 + '"\nkgc_token = "a"\nsp_token = "b"\n'
    monkeypatch.setitem(ADDED, forms.FILES[RequesterSettings], ({"name": "as it was"},))
    for head, name in (
        ("", "as it was"),
        ("form = 1\n", "as it was"),
        ("form = 2\n", "requester"),
        ('name = "own"\n', "own"),
    ):
        path.write_text(head + text)
        assert read_file(RequesterSettings, path).name == name
    path.write_text("form = 3\n" + text)
    with pytest.raises(SettingsError, match=r"settings\.toml: this settings file of a requester is of form 3"):
        read_file(RequesterSettings, path)


def test_a_task_file_of_form_1_keeps_its_defaults_in_every_table(monkeypatch):
    monkeypatch.setitem(
        ADDED, forms.FILES[TaskFile], ({"settings.window": 5.0, "shares.max_norm": 2.0, "plan.room": 7.0},)
    )
    found = completed_file(TaskFile, {"shares": {"max_norm": 3.0}}, "here")
    assert (found["settings"], found["shares"], found["plan"]) == ({"window": 5.0}, {"max_norm": 3.0}, {"room": 7.0})
    assert "hardened" not in completed_file(TaskFile, {"hardened": {}, "form": 1}, "here")["hardened"]


def test_an_invitation_file_of_a_later_form_is_refused(tmp_path):
    path = tmp_path / "invitation.json"
    path.write_text(json.dumps({"form": 2}))
    with pytest.raises(SettingsError, match="invitation file is of form 2"):
        read_invitation(path)


def test_files_that_are_written_name_their_form():
    assert [form_line(model) for model in forms.FILES] == ["form = 1\n"] * len(forms.FILES)
    assert SpSettings in forms.FILES
    assert TrainingSettings not in forms.FILES  # a table of a task file


# Messages: records and verdicts, and what servers keep.


def later_word() -> type[Message]:
    """Made when it is used: other tests look at every kind that they find."""

    class LaterWord(Message, kind=250, form=3):
        who: str
        signature: bytes
        more: int = added(3, 11)

    return LaterWord


@dataclass
class _Old:
    """The same kind as it was in form 2."""

    who: str

    def to_bytes(self, key: SigningKey) -> tuple[bytes, bytes]:
        def body(signature: bytes) -> bytes:
            fields = (self.who.encode(), signature)
            return b"CFLM\x02\xfa" + b"".join(len(one).to_bytes(4, "big") + one for one in fields)

        return body(key.sign(body(b""))), body(b"")


def test_a_message_of_an_earlier_form_is_read_and_its_signature_holds():
    key = SigningKey.fresh()
    data, over = _Old("x").to_bytes(key)
    word = later_word()
    found = word.from_bytes(data, Limits.plain())
    assert (found.who, found.more, found.form) == ("x", 11, 2)
    assert found.to_bytes() == data
    assert found.unsigned() == over
    verify(key.public, found.unsigned(), found.signature)
    newest = word("x", b"", 12)
    assert word.from_bytes(newest.to_bytes(), Limits.plain()) == newest
    assert newest.to_bytes()[4] == 3


def test_a_message_of_a_later_form_is_refused_by_name():
    data = bytearray(RoundRecord("t", 1, b"", (), (), (), b"", (), (), b"").to_bytes())
    data[4] = 3
    with pytest.raises(UnsupportedVersion, match="a RoundRecord of form 3; this program reads forms 2 to 2"):
        RoundRecord.from_bytes(bytes(data), Limits.plain())
