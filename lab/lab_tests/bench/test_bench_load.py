"""`crowdfl bench load` at a small size, with real processes: every figure is there and every upload is counted."""

from dataclasses import replace

import pytest

from crowdfl_lab.bench.load import LoadSettings, bench_load


@pytest.mark.parametrize("profile", ["hardened", "shares"])
def test_every_upload_of_a_small_load_is_acknowledged_and_counted(profile):
    """The bench itself refuses an average that misses an upload."""
    said: list[str] = []
    report = bench_load(replace(LoadSettings.quick(), profile=profile), say=said.append)
    rows = {row.key: row for row in report.rows}
    assert min(rows[key].crowdfl.value for key in ("acknowledged", "kept", "processor", "validate", "count")) > 0
    assert rows["memory"].ratio > 0
    crowds = rows["crowd_10"], rows["crowd_50"]
    assert crowds[1].ratio > 0
    assert report.unjudged == (
        rows["acknowledged"],
        rows["kept"],
        rows["memory"],
        *crowds,
    )  # a smoke run judges nothing
    assert any("enrolling 12" in line for line in said)
