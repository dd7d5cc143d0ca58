"""A round that hangs: wherever CSP stays away in it, the operator asks again or gives it up, and no money is lost."""

from collections.abc import Callable
from dataclasses import dataclass, field
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
from crowdfl.settings import UNTIL_PUBLISHED
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


PAPER: dict[str, Any] = {"profile": "paper", "key_bits": 512, "mask_bits": 45, "late": UNTIL_PUBLISHED, "rounds": 2}
WINDOW = 100.0  # and an average is held for so long


@dataclass
class LateRound:
    """A round of `paper`: four send in time, one while the first average is held. CSP answers so many requests, then none."""

    folder: Path
    answers: int | None = None
    asked: int = 0
    states: set[RoundState] = field(default_factory=set)  # in which CSP did not answer

    def __post_init__(self) -> None:
        self.desk = desk = Desk.funded(self.folder, 5, **PAPER)
        failures = FailureBackoff(structlog.get_logger(), store=desk.sp.store, clock=lambda: desk.clock.time)
        desk.sp.options.failures = failures
        real = desk.sp.ports.csp.answer

        def answer(*arguments: Any, **named: Any) -> bytes:
            if self.answers is not None and self.asked >= self.answers:
                self.states.add(desk.sp.store.round(desk.task, 1).state)
                raise ServiceUnavailable("CSP does not answer")
            self.asked += 1
            return real(*arguments, **named)

        desk.sp.ports.csp.answer = answer  # type: ignore[method-assign]
        self.go_on()

    def go_on(self) -> None:
        """Past the window, and past the time for which an average is held; not into the next round."""
        desk = self.desk
        number = len(desk.states())
        for _ in range(5):
            if (state := desk.states()[number - 1]) in ("open", "held"):
                desk.upload(desk.crowd[: 4 if state == "open" else 5])
            desk.later(WINDOW / 2)
            if len(desk.states()) > number:
                return


@pytest.mark.parametrize("void", [False, True], ids=["retry", "void"])
def test_a_round_that_is_averaged_again_is_ended_wherever_it_hangs(void: bool, tmp_path: Path):
    """Held, with the first average still to be made or the second; and in its rewards."""
    undisturbed = LateRound(tmp_path / "count")
    assert undisturbed.desk.states()[0] == "rewarded"
    hung = set[RoundState]()
    for at in range(undisturbed.asked):
        late = LateRound(tmp_path / str(at), at)
        desk = late.desk
        hung |= late.states
        assert f"crowdfl sp round {'void' if void else 'retry'} SETTINGS {desk.task} 1" in why(desk), at
        retry_round(desk.sp.core.sure_books, desk.task, 1, LEASE, void=void)
        late.answers = None
        desk.clock.time += LEASE + 1
        late.go_on()
        late.go_on()
        assert desk.states() == ["aborted" if void else "rewarded", "rewarded"], at
        earned = sum(person.claim() for person in desk.crowd)
        rounds = 1 if void else 2
        assert rounds * BUDGET - 10 < earned <= rounds * BUDGET, at
        desk.after_claims()
        assert desk.ledger.returned() == 2 * BUDGET - earned, at
        desk.disk.close()
    assert hung >= {RoundState.CLOSED, RoundState.GATHERED, RoundState.PUBLISHED}
