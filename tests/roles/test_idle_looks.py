"""A participant's look at a task costs the same in the tenth round and in the thousandth."""

from collections import Counter
from typing import Any

import pytest

from crowdfl.roles.participant.participant import Participant
from crowdfl.storage.blobs import FileBlobs
from crowdfl.storage.known_names import KnownNames
from tests.hosts import Desk, unchanged


class Counting:
    """Passes calls on, and counts them by name."""

    def __init__(self, inner: Any, counted: Counter[str]) -> None:
        self._inner, self._counted = inner, counted

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if not callable(found):
            return found

        def call(*given: Any, **named: Any) -> Any:
            self._counted[name] += 1
            return found(*given, **named)

        return call


def look(person: Participant) -> Counter[str]:
    """What one look with nothing to do asks of the disk and of the platform."""
    counted: Counter[str] = Counter()
    inner, sp = person.blobs, person.sp
    assert isinstance(inner, KnownNames)
    files = inner._blobs
    inner._blobs = Counting(files, counted)
    inner.get = inner._blobs.get
    person.sp = Counting(sp, counted)
    try:
        assert not person.step(unchanged)
        assert person.awaits_words  # of the round that is open
        person.model()
    finally:
        inner._blobs, inner.get, person.sp = files, files.get, sp
    return counted


@pytest.mark.parametrize(
    "rounds", [14, pytest.param(30, marks=pytest.mark.second), pytest.param(1000, marks=pytest.mark.slow)]
)
def test_a_look_costs_the_same_however_many_rounds_there_were(tmp_path, rounds):
    desk = Desk.funded(tmp_path, 3, rounds=rounds + 1, budget=None)
    person = desk.crowd[0]
    folder = tmp_path / "home"
    kept = FileBlobs(folder)
    kept.put_all({name: person.blobs.get(name) for name in person.blobs.listing()})
    person.blobs = KnownNames(kept)
    found = {}
    for number in range(1, rounds + 1):
        desk.play()
        if number in (10, rounds):
            while person.step(unchanged):
                pass
            found[number] = look(person)
    assert found[10] == found[rounds]
    assert sum(found[rounds].values()) < 10


def test_names_are_those_on_disk_whatever_failed(tmp_path, monkeypatch):
    """A write that breaks off half-way may have left some: they are listed again."""
    files = FileBlobs(tmp_path)
    known = KnownNames(files)
    known.put("rounds/1/made", b"")
    assert (known.has("rounds/1/made"), known.has("rounds/2/made")) == (True, False)

    def half(blobs):
        FileBlobs.put_all(files, dict([*blobs.items()][:1]))
        raise OSError("the disk is gone")

    with monkeypatch.context() as patch:
        patch.setattr(files, "put_all", half)
        with pytest.raises(OSError, match="gone"):
            known.put_all({"rounds/2/made": b"", "rounds/3/made": b""})
    assert [known.has(f"rounds/{number}/made") for number in (1, 2, 3)] == [True, True, False]
    known.delete("rounds/1/made")
    known.delete("rounds/9/made")
    assert not known.has("rounds/1/made")
    assert sorted(known.listing()) == ["rounds/2/made"]
