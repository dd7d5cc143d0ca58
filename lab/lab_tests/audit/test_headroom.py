"""The analytic check passes as built and catches a budget that is too short."""

from dataclasses import replace
from math import inf

import pytest

from crowdfl.protocols.hardened.shape import reward_widths
from crowdfl.protocols.profile import width_budget
from crowdfl.settings import TaskSettings
from crowdfl_lab.audit.finding import Verdict
from crowdfl_lab.audit.headroom import DivisorBound, ShortBudget, check_headroom, divisor_bounds, openings, shorten
from crowdfl_lab.audit.masks import attack_repeated_divisor

PARAMETERS = 277_006
WIDTHS = reward_widths(TaskSettings(), PARAMETERS)
HIDDEN = width_budget(TaskSettings(total="hidden", lanes=0), PARAMETERS, 40)
MASKS = ("lane + r", "average, dithered", "sums + R modulo N", "operand + a modulo N", "reward + m modulo N")
UNIFORM = MASKS[2:]
DIVISIONS = ("dividend of", "divisor of")
DIVIDED = ("weights", "rewards", "2^k / Y")


def totals(rows, names) -> dict[str, float]:
    """log2 of the distance over the task, of the rows whose names start so."""
    return {row.name: row.total for row in rows if row.name.startswith(names)}


def test_every_kind_of_opening_is_there():
    """Shown with rewards, and hidden."""
    assert {row.name for row in openings(WIDTHS.budget, WIDTHS) + openings(HIDDEN, None)} == {
        *MASKS,
        *(f"{kind} {name}" for kind in DIVISIONS for name in DIVIDED),
        *(f"guards of {name} modulo N" for name in DIVIDED),
    }


def test_what_is_masked_modulo_n_is_hidden_perfectly():
    """Operands and guards too: whatever CSP has made them by a false reply."""
    rows = openings(WIDTHS.budget, WIDTHS) + openings(HIDDEN, None)
    found = totals(rows, (*UNIFORM, "guards of"))
    assert len(found) == len(UNIFORM) + len(DIVIDED)
    assert set(found.values()) == {-inf}


@pytest.mark.parametrize("rows", [openings(WIDTHS.budget, WIDTHS), openings(HIDDEN, None)], ids=["rewards", "hidden"])
def test_masks_and_divisions_keep_sigma_bits_over_the_task(rows):
    """Lanes, dither, and what is uniform; dividends, and the evenness of divisors: at most 8 * 2^-sigma each."""
    for names in (MASKS, DIVISIONS):
        found = totals(rows, names)
        assert found
        assert all(total <= -40 for total in found.values())
    assert all(row.each <= -37 for row in rows if row.name.startswith(DIVISIONS))


@pytest.mark.parametrize("missing", [1, 8])
def test_a_mask_a_few_bits_short_is_caught(missing):
    """Even a single bit, where the budget has none to spare."""
    narrow = replace(WIDTHS, budget=replace(WIDTHS.budget, sigma=40 - missing))
    assert totals(openings(narrow.budget, narrow), MASKS[0])["lane + r"] > -40
    verdicts = {f.attack: f.verdict for f in check_headroom(narrow.budget, narrow, 40)}
    assert verdicts["headroom: lane + r"] is Verdict.BROKEN


def test_masks_shortened_on_purpose_are_caught():
    """The same ones that the two-sample test tells apart."""
    short = shorten(WIDTHS)
    assert isinstance(short.budget, ShortBudget)
    rows = totals(openings(short.budget, short), (MASKS[0], *DIVISIONS))
    assert len(rows) == 5
    assert all(total > 0 for total in rows.values())


def test_a_short_dither_is_caught():
    """One bit of sigma less."""
    assert totals(openings(replace(HIDDEN, sigma=38), None), MASKS[1])["average, dithered"] > -40


def test_divisor_bounds_are_stated_per_task():
    """One for every kind of division, over all rounds and participants."""
    bounds = {bound.name: bound for bound in divisor_bounds(WIDTHS.budget, WIDTHS) + divisor_bounds(HIDDEN, None)}
    assert {name: bound.distinct for name, bound in bounds.items()} == {"weights": 180, "rewards": 5, "2^k / Y": 5}
    assert all(bound.span > 590 for bound in bounds.values())
    assert bounds["2^k / Y"].worst < 0.05


def test_a_vacuous_bound_says_so():
    """An advantage is at most one."""
    assert DivisorBound("y", span=100, ybits=50, distinct=10).worst == 1.0


@pytest.mark.second
def test_repeated_divisors_fall_only_when_each_division_masks_anew():
    """By lattice with short remainders, by range with long ones, and not at all as built."""
    found = attack_repeated_divisor()
    assert [finding.verdict for finding in found] == [Verdict.BROKEN, Verdict.BROKEN, Verdict.GUESS]
    assert found[0].recovered.endswith("the divisor")  # or a few times it
    assert "no common divisor" in found[1].recovered
