"""When a task is over: two dates that its requester signs, and that every role takes from there."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from crowdfl.crypto.signing import SigningKey
from crowdfl.documents.signed import ClaimsExtension, Definition
from crowdfl.errors import BadSignature, Conflict, DocumentError, ServiceUnavailable, SettingsError, TooLate
from crowdfl.roles.csp import CspBooks, extend_claims
from crowdfl.roles.csp_retention import CspRetention
from crowdfl.roles.kgc_retention import KgcRetention
from crowdfl.roles.participant.participant import Participant
from crowdfl.roles.retention import Retention
from crowdfl.roles.sp.operator import OperatorActions
from crowdfl.roles.sp.retention import SpRetention
from crowdfl.settings import DAY, LAST_DATE, PlanSettings, TaskSettings
from tests.hosts import BUDGET, Desk, raising, small_definition
from tests.roles.test_dealt import NoParts
from tests.roles.test_plan import at

HOUR = 3600.0
PAID: dict[str, Any] = {"budget": "36.00", "pay": "equal", "rounds": 2}
ONE_ROUND = PAID | {"rounds": 1}


def sweepers(desk: Desk) -> list[Retention[Any]]:
    """Of all roles."""
    sp = SpRetention(desk.sp.store, desk.sp.ports.bundles, desk.clock, desk.sp.blobs, desk.sp.ports.guard, NoParts())
    own = desk.csp.store, desk.csp.bundles, desk.clock, desk.csp.blobs, desk.csp.guard
    return [sp, CspRetention(*own, forget=desk.csp.drop), KgcRetention(desk.kgc.store, desk.kgc.bundles, desk.clock)]


def pass_hours(desk: Desk, count: int, roles: list[Retention[Any]] | None = None) -> Iterator[None]:
    for _ in range(count):
        desk.later(HOUR)
        for role in sweepers(desk) if roles is None else roles:
            role.sweep(desk.clock.time, counting=True)
        desk.run()
        yield


def dates(plan: dict[str, Any], now: float = 1000.0, **settings: Any) -> Definition:
    made = TaskSettings.of(**({"rounds": 3, "window": 100.0} | settings))
    return replace(small_definition(made), plan=PlanSettings(**plan)).dated(now)


def test_the_last_days_follow_from_plan_windows_graces_and_room():
    """Each round begins as late as the plan lets it, is extended once, and takes late uploads where it does."""
    trial = dates({"room": 7.0})
    assert trial.plan.enrolment_end == 1000.0 + 30 * DAY
    assert (trial.rounds_until, trial.claim_window) == (1000 + 30 * DAY + 3 * 200 + 7, 500)
    assert dates({}).rounds_until - trial.rounds_until == 30 * DAY - 7
    assert dates({"room": 7.0}, late=50.0).rounds_until - trial.rounds_until == 3 * 50
    assert dates({"room": 0.0, "enrol_until": at(5000)}).rounds_until == 5000 + 600
    assert dates({"room": 0.0, "enrol_until": at(5000), "start_at": at(9000)}).rounds_until == 9000 + 600
    begun = dates({"room": 0.0, "start_at": at(9000), "every": 7 * DAY})
    assert (begun.plan.enrol_until, begun.rounds_until) == (None, 9000 + 2 * 7 * DAY + 200)
    daily = dates({"room": 0.0, "start_at": at(9000), "every": "day at 18:00 UTC"}, window=DAY)
    assert daily.rounds_until == 18 * HOUR + 2 * 3 * DAY + 2 * DAY + DAY
    for plan in ({"every": 1e9}, {"every": "day at 18:00"}):
        with pytest.raises(SettingsError, match="fewer `rounds`"):
            dates(plan, rounds=10**6, window=10.0**6)
    with pytest.raises(SettingsError, match="shorter `claim_window`"):
        replace(small_definition(TaskSettings.of()), claims_until=LAST_DATE).dated(1000.0)


def test_claims_end_after_rounds():
    body = dates({}).body()
    assert Definition.from_body(body).claim_window == 500
    with pytest.raises(DocumentError, match="claims_until"):
        Definition.from_body(body | {"claims_until": body["rounds_until"] - 1})
    for wrong in (-1, 1.5, True, LAST_DATE + 1):
        with pytest.raises(DocumentError, match="rounds_until"):
            Definition.from_body(body | {"rounds_until": wrong})
    key = SigningKey.fresh()
    with pytest.raises(DocumentError, match="it is a draft"):
        Definition.open(replace(small_definition(TaskSettings.of()), requester=key.public).sign(key))


def test_a_task_file_is_one_task_however_late_it_is_posted_again(tmp_path):
    """Unless its dates are over and no key was ever made for them."""
    desk = Desk(tmp_path)
    draft = replace(small_definition(desk.settings), purpose="another")
    kgc, desk.requester.kgc = desk.requester.kgc, raising(ServiceUnavailable("away"))  # type: ignore[assignment]
    with pytest.raises(AttributeError):
        desk.create(draft, desk.initial)
    desk.requester.kgc = kgc
    desk.clock.time += 100 * DAY
    task = desk.create(draft, desk.initial)
    assert desk.sp.core.definition(task).rounds_until > desk.clock.time
    desk.clock.time += 10 * DAY
    assert desk.create(draft, desk.initial) == desk.requester.posted(draft, desk.initial) == task


def test_a_long_plan_runs_to_its_last_round(tmp_path):
    """A round a month, and nobody cancels it on the way, though every role looks whether it is over more often than it must."""
    desk = Desk(tmp_path, {"every": 30 * DAY, "closes": "deadline"}, rounds=6, window=DAY, budget=None)
    desk.invite(3)
    desk.run()
    roles = sweepers(desk)
    while desk.state == "running":
        for role in roles:
            role.sweep(desk.clock.time, counting=True)
        is_open = desk.states()[-1:] == ["open"]
        if is_open:
            desk.upload()
        desk.later(6 * HOUR if is_open else DAY)
    assert desk.states() == ["rewarded"] * 6
    assert desk.sp.store.task(desk.task).end is None


def paused(folder: Path, **settings: Any) -> Desk:
    """A round is rewarded and read, another is open; then the requester pauses, and is never heard of again."""
    desk = Desk.funded(folder, 3, study={"claims_until": int(7 * DAY)}, **(PAID | settings))
    desk.play()
    desk.upload()
    desk.requester.order(desk.task, "pause")
    return desk


def test_a_pause_ends_with_the_last_day_of_rounds_and_what_was_earned_can_be_claimed(tmp_path):
    """And CSP attests it: a requester that pauses gets no model for nothing. Its operator sees what becomes of the money."""
    desk = paused(tmp_path)
    ends = desk.sp.core.definition(desk.task)
    desk.clock.time = ends.rounds_until - 30 * HOUR
    roles = sweepers(desk)
    for _ in pass_hours(desk, 29, roles):
        assert desk.state == "paused"
    for _ in pass_hours(desk, 2, roles):
        pass
    how = desk.sp.tasks.status(desk.task)["ended"]
    assert (desk.state, how["why"], how["by"]) == ("cancelled", "expired", "lifetime")
    assert desk.ledger.returned() == BUDGET  # of the round that was given up: at once
    assert desk.kgc.store.task(desk.task).state == "ended"
    assert desk.csp.store.task(desk.task).state == "open"
    about = OperatorActions(roles[0], desk.clock, desk.sp.core.sure_books).details(desk.sp.store.task(desk.task))  # type: ignore[arg-type]
    assert about["returned"] == "36.00 EUR: pay it back to where the deposits came from"
    assert "claims" in about["waits_for"]
    assert sum(person.claim() for person in desk.crowd) == BUDGET
    desk.run()
    assert (desk.state, desk.ledger.returned()) == ("settled", BUDGET)


def test_claims_end_on_their_last_day_and_the_books_a_day_later(tmp_path):
    """A claim that was taken is answered again; CSP still attests meanwhile; nobody's money returns before."""
    desk = Desk.funded(tmp_path, 3, **ONE_ROUND)
    desk.play()
    desk.upload()
    first, second, _ = desk.crowd
    ends = desk.sp.core.definition(desk.task)
    desk.clock.time = float(ends.claims_until)
    earned = first.claim()
    desk.later(1.0)
    with pytest.raises(TooLate, match="last day of claims"):
        second.claim()
    assert desk.sp.claims.pay(desk.task, first.blobs.get("claim")).amount == earned
    assert desk.csp.answer(desk.task, second.blobs.get("claim"))
    stored = desk.sp.store.task(desk.task)
    desk.clock.time = stored.attests_until - 1
    desk.run()
    assert (desk.state, desk.ledger.returned()) == ("finished", 0)
    desk.later(1.0)
    assert (desk.state, desk.ledger.returned()) == ("settled", BUDGET - earned)
    assert desk.sp.claims.pay(desk.task, first.blobs.get("claim")).amount == earned


def test_books_are_closed_at_once_when_nobody_is_owed_anything(tmp_path):
    """What division left of a round is nobody's; a deposit that may still be confirmed is somebody's."""
    desk = Desk.funded(tmp_path, 3, **ONE_ROUND | {"budget": "10.00"})
    desk.sp.deposits.announce(desk.task, "late", 5)
    desk.play()
    desk.upload()
    *most, last = desk.crowd
    for person in most:
        person.claim()
    desk.run()
    assert desk.state == "finished"
    last.claim()
    assert last.claim() == last.claimed.booked
    desk.run()
    assert desk.state == "finished"
    desk.confirm_deposits(desk.task)
    desk.run()
    assert desk.state == "settled"
    assert sum(desk.ledger.balances().values()) == 0
    assert desk.ledger.returned() == BUDGET + 5 - 3 * 3_333_333


def test_no_round_opens_that_could_not_close_and_none_is_extended_past_the_last_day(tmp_path):
    desk = Desk(tmp_path, {"enrol_until": at(2000), "room": 0.0}, budget=None, rounds=2, window=100.0)
    desk.invite(3)
    ends = desk.sp.core.definition(desk.task).rounds_until
    desk.clock.time = ends - 99.0
    desk.run()
    assert desk.states() == []
    desk.clock.time = ends - 150.0
    desk.run()
    assert desk.states() == ["open"]
    desk.later(101.0)
    assert (desk.states(), desk.sp.store.round(desk.task, 1).extended) == (["aborted"], False)


def books(desk: Desk) -> CspBooks:
    return CspBooks(desk.csp.store, desk.csp.bundles, desk.clock, desk.tools)


def earned(folder: Path) -> tuple[Desk, list[Participant]]:
    desk = Desk.funded(folder, 3, **ONE_ROUND)
    desk.play()
    desk.upload()
    return desk, desk.crowd


def test_csp_extends_claims_once_by_the_time_to_claim_at_most_and_before_they_end(tmp_path):
    """SP asks for it on the last day, takes claims until then, and people's devices believe CSP's signature."""
    desk, (first, second, third) = earned(tmp_path)
    ends = desk.sp.core.definition(desk.task)
    with pytest.raises(DocumentError, match="extended to a moment"):
        extend_claims(books(desk), desk.task, ends.claim_window + 1)
    until = extend_claims(books(desk), desk.task, 400)
    assert until == ends.claims_until + 400
    with pytest.raises(Conflict, match="extended already"):
        extend_claims(books(desk), desk.task, 401)
    desk.clock.time = float(ends.claims_until) - 10
    desk.run()
    status = desk.sp.tasks.status(desk.task)
    assert (status["claims_extended"], status["claim_seconds_left"]) == (desk.csp.claims_extended(desk.task), 410.0)
    assert first.claims_until(status) == until
    assert first.claims_until({}) == until  # the platform shows it once
    forged = ClaimsExtension(desk.task, until).sign(SigningKey.fresh())
    assert second.claims_until({"claims_extended": forged}) == ends.claims_until
    desk.clock.time = float(until)
    assert first.claim() + second.claim() + third.claim() == BUDGET


def test_claims_are_not_extended_after_their_last_day(tmp_path):
    desk, _ = earned(tmp_path)
    desk.clock.time = float(desk.sp.core.definition(desk.task).claims_until)
    with pytest.raises(TooLate):
        extend_claims(books(desk), desk.task, 400)


@pytest.mark.parametrize("away", [False, True])
def test_sp_asks_for_an_extension_before_it_closes_the_books(tmp_path, away):
    """One that was off on the last day too. An absent CSP is waited for as long as claims can be extended."""
    desk, _ = earned(tmp_path)
    ends = desk.sp.core.definition(desk.task)
    until = extend_claims(books(desk), desk.task, 400)
    asking = desk.csp.claims_extended
    desk.clock.time = desk.sp.store.task(desk.task).attests_until
    if away:
        desk.csp.claims_extended = raising(ServiceUnavailable("away"))  # type: ignore[method-assign]
        with pytest.raises(ServiceUnavailable):
            desk.run()
        desk.csp.claims_extended = asking  # type: ignore[method-assign]
    desk.run()
    assert (desk.state, desk.sp.store.task(desk.task).claims_until) == ("finished", until)
    desk.clock.time = desk.sp.store.task(desk.task).attests_until
    desk.run()
    assert (desk.state, desk.ledger.returned()) == ("settled", BUDGET)
    assert until > ends.claims_until


def test_a_csp_that_is_gone_keeps_the_money_no_longer_than_an_extension_could(tmp_path):
    desk, _ = earned(tmp_path)
    desk.csp.claims_extended = raising(ServiceUnavailable("away"))  # type: ignore[method-assign]
    stored = desk.sp.store.task(desk.task)
    desk.clock.time = stored.attests_until + stored.opened.claim_window
    desk.run()
    assert desk.state == "settled"


def test_an_extension_is_of_this_task_and_by_its_csp(tmp_path):
    desk, _ = earned(tmp_path)
    ends, key = desk.sp.core.definition(desk.task), SigningKey.fresh()
    good = ClaimsExtension(desk.task, ends.claims_until + 1).sign(key)
    assert ClaimsExtension.open_of(good, ends, key.public).until == ends.claims_until + 1
    with pytest.raises(BadSignature):
        ClaimsExtension.open_of(good, ends, SigningKey.fresh().public)
    for task, until in (
        ("0" * 64, ends.claims_until + 1),
        (desk.task, ends.claims_until),
        (desk.task, ends.claims_until + ends.claim_window + 1),
    ):
        with pytest.raises(DocumentError):
            ClaimsExtension.open_of(ClaimsExtension(task, until).sign(key), ends, key.public)
