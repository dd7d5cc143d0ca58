"""How long the numbers of the rule `distance` are, for tasks as people make them; and what a round is paid by."""

from typing import Any

import numpy as np
import pytest

from crowdfl.errors import WidthBudgetExceeded
from crowdfl.protocols.profile import TaskSpec
from crowdfl.protocols.shares.circuits.program import Half
from crowdfl.protocols.shares.circuits.reciprocal import LEAK, CspDivider, SpDivider
from crowdfl.protocols.shares.circuits.scalars import SPARE
from crowdfl.protocols.shares.dealing.rounds import deal_round
from crowdfl.protocols.shares.round import rewards
from crowdfl.protocols.shares.rule_widths import RuleWidths
from crowdfl.protocols.shares.shape import SharesShape
from crowdfl.protocols.shares.widths import SharesWidths
from crowdfl.settings import TaskSettings
from tests.protocols.shares.dealing import deal_with, joined, run
from tests.protocols.shares.lane_round import Round, honest
from tests.protocols.shares.scoring import SmallRound, plain_rewards, plain_weights

PAPERS: dict[str, Any] = {"max_participants": 36, "lanes": 4096, "rounds": 5, "max_norm": 5.0, "budget": "36.00"}
SMALL: dict[str, Any] = {
    "max_participants": 6,
    "lanes": 260,
    "max_norm": 2.0,
    "decimals": 3,
    "clip": 4.0,
    "max_samples": 50,
}
MANY: dict[str, Any] = {"max_participants": 1000, "lanes": 1024, "rounds": 10, "max_norm": 5.0}
EDGE: dict[str, Any] = {
    "max_participants": 3,
    "lanes": 128,
    "decimals": 0,
    "clip": 1.0,
    "max_samples": 1,
    "max_norm": 1.0,
}


def task(rule: str, **settings: Any) -> TaskSettings:
    return TaskSettings.of(**{"profile": "shares", "budget": "1.00", "pay": rule, **settings})


def widths_of(parameters: int = 277_006, **settings: Any) -> RuleWidths:
    chosen = task("distance", **settings)
    return RuleWidths.of(SharesWidths.of(chosen, parameters), chosen)


@pytest.mark.parametrize(
    "settings", [PAPERS, SMALL, EDGE, MANY | {"rounds": 1}], ids=["paper", "small", "edge", "many"]
)
def test_every_number_that_is_converted_has_its_spare_bits(settings: dict[str, Any]) -> None:
    widths = widths_of(300 if settings is EDGE else 277_006, **settings)
    n, s = widths.participants, widths.max_samples
    largest = [n * n * widths.square, (n * s) ** 2]  # |U|^2, Y^2: modulo 2^R
    assert max(largest) << (SPARE + 1) <= 1 << widths.R
    assert s**3 <= widths.distance_most


def test_all_divisions_of_a_task_show_less_than_one_percent_and_explain_says_so() -> None:
    widths = widths_of(**PAPERS)
    assert LEAK * 0.99 < widths.leak <= LEAK
    assert "apart by at most 1.00%" in widths.explain()
    assert f"behind masks of {widths.span} bits" in widths.explain()


def test_a_task_with_too_many_divisions_is_refused_with_what_to_change() -> None:
    with pytest.raises(WidthBudgetExceeded, match="more than 1048576: lower rounds"):
        widths_of(**MANY)


# ---- from uploads to rewards -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", ["samples", "distance"])
def test_rewards_of_a_round_are_the_rules_on_its_lanes(rule: str) -> None:
    """Checks, products and rule together, with the kept lanes of the real sketch; slot 2 did not open."""
    generator = np.random.default_rng(3)
    shape = SharesShape(TaskSpec("5a" * 16, task(rule, **SMALL), 60))
    common = generator.integers(-150, 150, size=60)
    samples = [1, 50, 7, 20, 3]
    uploads = [honest(common + generator.integers(-90, 90, size=60), count) for count in samples]
    played = Round(shape.widths, [*uploads[:2], None, *uploads[2:]])
    given = deal_with(lambda cards: deal_round(cards, shape))
    played.dealt = given.sp.lanes, given.csp.lanes, given.kgc.lanes
    kept: list[int] = []

    def program(divider: SpDivider | CspDivider) -> Half[list[int]]:
        checked, _ = yield from played.program(divider.side, products=False)
        kept[:] = checked.lanes.places.tolist()
        own = given.sp if divider.side.index == 0 else given.csp
        return (yield from rewards.reward_shares(divider, shape, own, checked))

    sp, csp, _ = run(program, program)
    form = shape.reward_form
    paid = [form.payable(opened, shape.payment) for opened in joined(sp, csp, 8 * form.width)]
    assert len(kept) > 0
    if rule == "samples":
        assert paid == [shape.payment * count // sum(samples) for count in samples]
        return
    used = [[played.lanes_of(upload.entries)[place] for place in kept] for upload in uploads]
    expected = plain_rewards(plain_weights(shape.rule_widths, SmallRound(used, samples)), shape.payment)
    assert all(abs(mine - other) < 2 for mine, other in zip(paid, expected, strict=True))
    assert shape.payment - 2 * len(paid) <= sum(paid) <= shape.payment
