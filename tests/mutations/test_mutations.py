"""Every check has a test that fails without it: with each mutation of `declared`, a test near it does."""

import sys
from collections import Counter

import pytest

from tests import subprocesses
from tests.mutations.declared import MUTATIONS

TOGETHER = 12  # in one process: a busy machine must get through them in the time that a test has
PARTS = [
    (group, str(start), str(start + TOGETHER))
    for group, mutations in MUTATIONS.items()
    for start in range(0, len(mutations), TOGETHER)
]


@pytest.mark.parametrize("part", PARTS, ids="-".join)
def test_every_mutation_is_killed(part):
    """Whatever survives, or no longer finds its place in the code, is named in what is printed. Unaltered, the same tests are a
    part of the two tiers."""
    done = subprocesses.run(
        [sys.executable, "-m", "tests.mutations.run", "--only", *part], capture_output=True, text=True, timeout=1400
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_mutations_have_names_of_their_own():
    names = Counter(one.name for group in MUTATIONS.values() for one in group)
    assert [name for name, count in names.items() if count > 1] == []
    assert all(one.tests and one.old != one.new for group in MUTATIONS.values() for one in group)
