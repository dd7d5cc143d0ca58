"""How SP counts uploads: in groups, bounded in number and in bytes."""

import pytest

from crowdfl.roles.sp import uploads as aggregators
from tests.clear import ClearSp
from tests.hosts import Desk


@pytest.mark.parametrize(
    ("most", "uploads_of_bytes", "groups"),
    [(15, 99, [4]), (3, 99, [3, 1]), (15, 2.5, [2, 2]), (15, 0.5, [1, 1, 1, 1])],
)
def test_uploads_are_counted_in_groups_of_bounded_size(tmp_path, monkeypatch, most, uploads_of_bytes, groups):
    """By number and by bytes; an upload beyond the bound goes in alone."""
    desk = Desk.funded(tmp_path, 4)
    seen = []
    whole = ClearSp.add_all

    def noted(side, uploads, *, validated):
        assert validated
        seen.append(len(uploads))
        whole(side, uploads, validated=validated)

    monkeypatch.setattr(ClearSp, "add_all", noted)
    monkeypatch.setattr(aggregators, "_GROUP", most)
    monkeypatch.setattr(aggregators, "_GROUP_BYTES", int(uploads_of_bytes * desk.sp.upload_limit(desk.task)))
    desk.upload()
    assert desk.sp.aggregators.add_new(desk.task, 1) == 4
    assert seen == groups
    assert desk.sp.aggregators.add_new(desk.task, 1) == 0
