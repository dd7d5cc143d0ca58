"""How SP counts uploads: in groups, bounded in number and in bytes."""

import pytest

from crowdfl.errors import FormatError
from crowdfl.protocols.hardened.profile import HardenedSp
from crowdfl.roles.sp import aggregators
from crowdfl.roles.sp.aggregators import upload_name
from tests.hosts import Desk


@pytest.mark.parametrize(
    ("most", "uploads_of_bytes", "groups"),
    [(15, 99, [4]), (3, 99, [3, 1]), (15, 2.5, [2, 2]), (15, 0.5, [1, 1, 1, 1])],
)
def test_uploads_are_counted_in_groups_of_bounded_size(tmp_path, monkeypatch, most, uploads_of_bytes, groups):
    """By number and by bytes; an upload beyond the bound goes in alone."""
    desk = Desk(tmp_path)
    desk.invite(4)
    desk.requester.fund(desk.task, 72_000_000, "all")
    desk.run()
    seen = []
    whole = HardenedSp.add_all

    def noted(side, uploads, *, validated):
        assert validated
        seen.append(len(uploads))
        whole(side, uploads, validated=validated)

    monkeypatch.setattr(HardenedSp, "add_all", noted)
    monkeypatch.setattr(aggregators, "_GROUP", most)
    monkeypatch.setattr(aggregators, "_GROUP_BYTES", int(uploads_of_bytes * desk.sp.upload_limit(desk.task)))
    for person in desk.crowd:
        person.step(lambda arrays, _settings, _round=0: (arrays, 5))
    assert desk.sp.aggregators.add_new(desk.task, 1) == 4
    assert seen == groups
    assert desk.sp.aggregators.add_new(desk.task, 1) == 0


@pytest.mark.parametrize("when", ["before it is added up", "before it is rewarded"])
def test_an_upload_whose_file_was_altered_is_not_averaged(tmp_path, when):
    """It was validated when it was received, and never again: what is read must be what was acknowledged."""
    desk = Desk(tmp_path, lanes=1024)
    people = desk.invite(3)
    desk.requester.fund(desk.task, 72_000_000, "all")
    desk.run()
    for person in people:
        person.step(lambda arrays, _settings, _round=0: (arrays, 5))
    if when == "before it is rewarded":
        desk.sp.aggregators.add_new(desk.task, 1)  # the sum is there: rewards read each upload again
    entry = desk.sp.store.uploads(desk.task, 1)[0]
    file = tmp_path / "sp/blobs" / upload_name(desk.task, 1, entry.digest)
    width = people[0].side.party.public.ciphertext_bytes
    whole = file.read_bytes()
    file.write_bytes(whole[:-width] + bytes(width))  # no ciphertext: zero is not a unit
    with pytest.raises(FormatError, match="was altered"):
        desk.run()
    assert desk.sp.status(desk.task)["rounds"][0]["state"] == "closed"
    file.write_bytes(whole)
    desk.run()
    assert desk.sp.status(desk.task)["rounds"][0]["state"] == "rewarded"
