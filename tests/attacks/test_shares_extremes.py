"""Tasks of `shares` at the ends of what settings allow: averages are exact, nobody honest is left out, budgets hold."""

from typing import Any

import numpy as np
import pytest

from crowdfl.errors import NotFinite
from crowdfl.simulation.local_host import LocalFederation, Update
from tests.hosts import ONE

_WIDE = {"max_participants": 3, "max_samples": 10**6, "decimals": 6, "max_norm": 2.0}
# Parameters, people, settings; and what is paid for a round, at least and at most.
TASKS: dict[str, tuple[int, int, dict[str, Any], tuple[float, float]]] = {
    "one parameter": (1, 5, {"budget": "9.00"}, (8.99, 9)),
    "a norm below the unit": (50, 5, {"max_norm": 1e-9, "budget": "9.00"}, (0, 0)),
    "a norm that bounds nothing": (50, 5, {"max_norm": 1e15}, (0, 0)),
    "one sample each": (20, 5, {"max_samples": 1, "budget": "9.00"}, (8.99, 9)),
    "as many as the least": (20, 3, {"max_participants": 3, "min_participants": 3, "budget": "9.00"}, (8.99, 9)),
    "the widest ring": (200, 3, _WIDE, (0, 0)),
    "the widest division": (30, 3, _WIDE | {"decimals": 4, "budget": "9.00"}, (8.99, 9)),
    "less than a millionth for each": (5, 3, {"budget": "0.000002"}, (0, 0)),
}


@pytest.mark.second
@pytest.mark.parametrize(("parameters", "people", "settings", "pay"), TASKS.values(), ids=TASKS.keys())
def test_extreme_tasks_are_averaged_exactly(
    parameters: int, people: int, settings: dict[str, Any], pay: tuple[float, float]
) -> None:
    bounds = {"max_participants": 5, "max_samples": 20, "decimals": 3, "clip": 2.0, "max_norm": 1.0, "lanes": 128}
    chosen = bounds | settings
    federation = LocalFederation(profile="shares", rounds=2, backend=ONE, **chosen)
    rng, unit = np.random.default_rng(1), 10 ** chosen["decimals"]
    common = rng.normal(size=parameters)
    updates = {f"p{i}": 0.5 * (common + 0.1 * rng.normal(size=parameters)) for i in range(people)}
    counts = {who: max(1, chosen["max_samples"] - i) for i, who in enumerate(updates)}

    def shared(change: Any) -> Any:
        within = change * min(1, chosen["max_norm"] / np.linalg.norm(change))
        return np.rint(np.clip(within, -chosen["clip"], chosen["clip"]) * unit)

    found = federation.round({who: Update([update], counts[who]) for who, update in updates.items()})
    expected = np.rint(sum(shared(u) * counts[who] for who, u in updates.items()) / sum(counts.values()))
    assert np.array_equal(np.rint(found.average[0] * unit), expected)
    assert found.rejected == {}
    assert pay[0] <= float(sum((found.rewards or {}).values())) <= pay[1]


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_weight_that_is_no_number_never_leaves_the_phone(value: float) -> None:
    federation = LocalFederation(profile="shares", max_participants=3, rounds=1, max_norm=1.0, backend=ONE)
    with pytest.raises(NotFinite):
        federation.round({f"p{i}": Update([np.array([value, 0.0])], 1) for i in range(3)})
