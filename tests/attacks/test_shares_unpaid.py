"""A requester who announces a budget that no rule ever pays."""

from pathlib import Path

import pytest

from crowdfl.errors import SettingsError
from tests.attacks.test_shares_restored import SHARES, play
from tests.hosts import Desk


@pytest.mark.parametrize("check", ["bounds", "none"])
def test_a_budget_without_a_rule_that_pays_is_refused(tmp_path: Path, check: str) -> None:
    """Its rounds would stand still until SP's patience ends, with everyone's work in them."""
    with pytest.raises(SettingsError, match="pays nobody: leave `budget` out"):
        Desk(tmp_path / "desk", **(SHARES | {"rule": "none", "check": check}))


def test_without_a_budget_such_a_task_runs(tmp_path: Path) -> None:
    desk = Desk(tmp_path / "desk", **(SHARES | {"rule": "none", "budget": None, "rounds": 1}))
    desk.invite(3)
    desk.run()
    play(desk)
    assert [entry["state"] for entry in desk.sp.status(desk.task)["rounds"]] == ["rewarded"]
