"""What one process deals to both servers beside the files that KGC deals to two: in sum the same numbers."""

from typing import Any

import numpy as np
import pytest

from crowdfl.crypto.shares.limbs import Bytes, add_rows, from_words
from crowdfl.protocols.profile import TaskSpec
from crowdfl.protocols.shares.circuits.compare import Comparison
from crowdfl.protocols.shares.dealing.keys import deal_keys, seeds_of
from crowdfl.protocols.shares.dealing.rounds import CSP_ROLE, SP_ROLE, DealtLanes, dealt_file, low_words, received
from crowdfl.protocols.shares.shape import SharesShape, shape_of
from crowdfl.settings import TaskSettings
from crowdfl.simulation.crowd_dealing import dealt_together
from tests.hosts import FEW_LANES, SMALL_BOUNDS

_TASK = SMALL_BOUNDS | FEW_LANES | {"rounds": 2}


def _shape(**other: Any) -> SharesShape:
    settings = TaskSettings.of(**(_TASK | other))
    return shape_of(TaskSpec("5a" * 16, settings, 40))


def _masks(lanes: DealtLanes, shape: SharesShape) -> Any:
    return low_words(lanes.lanes[:], shape.widths.k)


def _widened(rows: Bytes, bits: int) -> Bytes:
    return rows if rows.shape[-1] == bits // 8 else from_words(np.ascontiguousarray(rows).view("<u8")[..., 0], bits)


@pytest.mark.parametrize("settings", [{}, {"weighting": "equal"}, {"budget": "4.00", "pay": "distance"}])
@pytest.mark.parametrize("file", [1, 2])
def test_both_servers_have_in_sum_what_their_files_give_them(settings: dict[str, Any], file: int) -> None:
    shape, source = _shape(**settings), deal_keys(64).source
    k, R = shape.widths.k, shape.widths.R  # noqa: N806
    files = [
        received(shape, seed, role, file, b"".join(dealt_file(shape, source, role, file)))
        for role, seed in zip((SP_ROLE, CSP_ROLE), seeds_of(source), strict=True)
    ]
    together = dealt_together(shape, source, file)
    sums = []
    for sp, csp in (files, together):
        masks = (_masks(sp.lanes, shape) + _masks(csp.lanes, shape)) & np.uint64((1 << k) - 1)
        whole = add_rows(_widened(sp.lanes.lanes[:], R), _widened(csp.lanes.lanes[:], R))
        sums.append((masks, whole, add_rows(sp.lanes.squares, csp.lanes.squares)))
    assert all(map(np.array_equal, *sums))
    for one, other in zip(files, together, strict=True):  # the streams went on where those of files do
        if shape.widths.has_counts:
            mine, theirs = one.lanes.counts, other.lanes.counts
            assert (mine.zeros, mine.roots, mine.root_squares) == (theirs.zeros, theirs.roots, theirs.root_squares)
            assert mine.norm_check.plain.mask == theirs.norm_check.plain.mask
        else:
            assert isinstance(one.lanes.checks, Comparison)
            assert isinstance(other.lanes.checks, Comparison)
            assert one.lanes.checks.mask == other.lanes.checks.mask
        assert one.rewards == other.rewards
