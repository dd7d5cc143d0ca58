"""The widths of a task are computed once, not by every step that needs one: a thousand times in a small round otherwise."""

import sys
from collections import Counter

import numpy as np
import pytest

from crowdfl.crypto.paillier import budget
from crowdfl.protocols.common import sdiv
from crowdfl.protocols.hardened import prirwd
from crowdfl.protocols.shares import rule_widths, widths
from crowdfl.protocols.shares.circuits import reciprocal
from tests.protocols.driving import SMALL, deal
from tests.protocols.shares import parties

MODULES = {module.__file__ for module in (budget, sdiv, prirwd, rule_widths, widths, reciprocal)}
MOST = 40  # calls, each of another width or with an argument of the round


def counted(step) -> Counter:
    """How often anything of the widths was computed while a step ran."""
    calls: Counter = Counter()

    def note(frame, event, _):
        own = frame.f_locals.get("self")
        if (
            event == "call"
            and frame.f_code.co_filename in MODULES
            and type(own).__name__.endswith(("Widths", "Budget"))
            and frame.f_code.co_name not in ("takes", "gives")  # they test one number each, by widths that are there
        ):
            calls[frame.f_code.co_qualname] += 1

    sys.setprofile(note)
    try:
        step()
    finally:
        sys.setprofile(None)
    return calls


@pytest.mark.parametrize("pay", ["equal", "samples", "distance"])
def test_a_shares_round_computes_no_width_twice(pay):
    world = parties.Parties(3, 8, parties.PAYING | {"pay": pay})
    calls = counted(lambda: world.play(1, world.encrypt(1, world.models())))
    assert sum(calls.values()) < MOST, calls


def test_a_hardened_round_computes_no_width_twice():
    sides = deal(4, 3, **SMALL | {"max_participants": 4, "rounds": 5})
    updates = {who: (np.array([0.1, 0.2, 0.3]), i + 1) for i, who in enumerate(sides.people)}
    calls = counted(lambda: sides.play(1, sides.encrypt(updates), payment=36_000_000))
    assert sum(calls.values()) < MOST, calls


def test_what_is_computed_is_counted():
    task = budget.WidthBudget(2048, 100, 5, 10)
    assert sum(counted(lambda: [task.packing, task.explain()]).values()) > 0
