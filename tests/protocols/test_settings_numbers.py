"""Numbers of a task's settings that no arithmetic can take."""

import pytest

from crowdfl.errors import CrowdFLError, SettingsError
from crowdfl.protocols.settings import TaskSettings


@pytest.mark.parametrize("name", ["clip", "window", "grace", "epsilon"])
@pytest.mark.parametrize("value", [10**400, 2**64, 1e308, float("inf"), float("nan"), -1, True, "1"])
def test_a_number_beyond_all_use_is_refused_by_name(name, value):
    """Found by searching: an integer that no float holds, and one that NumPy takes for an object."""
    with pytest.raises(SettingsError, match=f"{name} must be a number from 0 to 1000000000000000, not"):
        TaskSettings.of(**{name: value})


@pytest.mark.parametrize("settings", [{"decimals": 1000, "epsilon": 1.0}, {"rounds": 10**16}, {"max_samples": 10**400}])
def test_whole_numbers_too(settings):
    """Before anything is computed from them."""
    with pytest.raises(CrowdFLError):
        TaskSettings.of(**settings)
