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


def test_mutations_have_names_of_their_own_and_change_what_no_other_does():
    every = [one for group in MUTATIONS.values() for one in group]
    for those in ((one.name for one in every), ((one.file, one.old, one.new, one.tests[0]) for one in every)):
        assert [one for one, count in Counter(those).items() if count > 1] == []
    assert all(one.old != one.new for one in every)
