"""The audit of differential privacy: kept as built, and broken by each way of breaking it."""

import pytest

from crowdfl_lab.audit.privacy import BROKEN, BUILT, attack


def test_noise_as_built_keeps_what_the_accountant_says():
    found = attack(BUILT, 12_800)
    assert found.is_kept
    assert found.reached > 0.6 * found.allowed  # the attack is worth something


@pytest.mark.parametrize("task", BROKEN, ids=lambda task: task.name)
def test_every_way_of_breaking_it_shows(task):
    assert not attack(task, 12_800).is_kept
