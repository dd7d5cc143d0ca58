"""A round that hangs: wherever CSP stays away in it, the operator asks again or gives it up, and no money is lost."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import structlog

from crowdfl.errors import ServiceUnavailable
from crowdfl.roles.records import EndedBy, RoundState
from crowdfl.roles.sp.ledger import ESCROW
from crowdfl.roles.sp.operator import retry_round
from crowdfl.roles.sp.why import Around, causes
from crowdfl.services.background.workers import FailureBackoff
from tests.hosts import BUDGET, HARDENED, Desk

pytestmark = pytest.mark.second
PROFILES: dict[str, dict[str, Any]] = {"shares": {"pay": "equal"}, "hardened": HARDENED}
LEASE = 30.0


def stuck(folder: Path, at: int, **settings: Any) -> tuple[Desk, Callable[[], None]]:
    """A desk whose CSP answers so many requests of the first round, and what brings it back."""
    desk = Desk.funded(folder, 3, **({"rounds": 2} | settings))
    failures = FailureBackoff(structlog.get_logger(), store=desk.sp.store, clock=lambda: desk.clock.time)
    desk.sp.options.failures = failures
    left, real = [at], desk.sp.ports.csp.answer

    def answer(*arguments: Any, **named: Any) -> bytes:
        if not left[0]:
            raise ServiceUnavailable("CSP does not answer")
        left[0] -= 1
        return real(*arguments, **named)

    desk.sp.ports.csp.answer = answer  # type: ignore[method-assign]
    desk.upload()
    for _ in range(4):
        desk.sp.tick()
        desk.clock.time += 1.0

    def back() -> None:
        desk.sp.ports.csp.answer = real  # type: ignore[method-assign]
        desk.clock.time += LEASE + 1  # the operator's hold on the task is over
        desk.run()

    return desk, back


def requests(folder: Path, **settings: Any) -> int:
    """How many CSP answers in a round that nothing disturbs."""
    desk = Desk.funded(folder, 3, **({"rounds": 2} | settings))
    count, real = [0], desk.sp.ports.csp.answer

    def answer(*arguments: Any, **named: Any) -> bytes:
        count[0] += 1
        return real(*arguments, **named)

    desk.sp.ports.csp.answer = answer  # type: ignore[method-assign]
    desk.upload()
    while not desk.sp.store.round(desk.task, 1).is_over:
        desk.sp.tick()
    return count[0]


def why(desk: Desk) -> list[str]:
    found = causes(desk.sp.store, desk.sp.blobs, desk.sp.store.task(desk.task), Around(csp_patience=50.0))
    return [command for one in found for command in one.do]


def is_ended_by_csp(desk: Desk) -> bool:
    """It opens no second sum of one model."""
    end = desk.sp.store.task(desk.task).end
    return end is not None and end.by == EndedBy.CSP


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("void", [False, True], ids=["retry", "void"])
def test_wherever_a_round_hangs_it_is_ended_by_the_command_that_why_names(profile: str, void: bool, tmp_path: Path):
    """Asked again it is paid as if nothing had been. Given up, its budget returns, and the next round opens, or the task ends
    where CSP has opened the round's sum. No cent is lost in either."""
    settings, states = PROFILES[profile], set[RoundState]()
    for at in range(requests(tmp_path / "count", **settings)):
        desk, back = stuck(tmp_path / str(at), at, **settings)
        states.add(desk.sp.store.round(desk.task, 1).state)
        assert f"crowdfl sp round {'void' if void else 'retry'} SETTINGS {desk.task} 1" in why(desk), at
        retry_round(desk.sp.core.sure_books, desk.task, 1, LEASE, void=void)
        back()
        if not void:
            assert desk.states()[0] == "rewarded", at
        elif desk.state != "cancelled":
            assert desk.states() == ["aborted", "open"], at
            assert desk.ledger.balance(ESCROW) == BUDGET, at
        if desk.state != "cancelled":
            desk.upload()
            desk.run()
            assert desk.states()[1] == "rewarded" or (void and is_ended_by_csp(desk)), at
        earned = sum(person.claim() for person in desk.crowd)
        rounds = desk.states().count("rewarded")
        assert rounds * BUDGET - 10 < earned <= rounds * BUDGET, at
        desk.after_claims()
        assert desk.ledger.returned() == 2 * BUDGET - earned, at
        desk.disk.close()
    assert RoundState.CLOSED in states


@pytest.mark.parametrize("void", [False, True], ids=["retry", "void"])
def test_a_round_that_waits_for_people_or_a_reference_is_given_up_or_left_as_it_is(void: bool, tmp_path: Path):
    """Open, it needs nobody's word to go on: asking again changes nothing."""
    for name, settings in (
        ("people", {}),
        ("reference", {"reference": True, "max_norm": 3.0, "lanes": 1024, "weighting": "equal"}),
    ):
        desk = Desk.funded(tmp_path / name, 3, **({"rounds": 2} | settings))
        desk.upload(desk.crowd[:1])
        before = desk.ledger.balance(ESCROW)
        retry_round(desk.sp.core.sure_books, desk.task, 1, LEASE, void=void)
        desk.later(LEASE + 1)
        assert desk.states() == (["aborted", "open"] if void else ["open"])
        assert desk.ledger.balance(ESCROW) == before
        desk.disk.close()
