"""The operator's console: what it shows, what it does, and how a browser hears of changes."""

import contextlib
import inspect
import json
import re
import threading
import time
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from crowdfl.errors import Forbidden, StoreUnavailable
from crowdfl.reasons import Reason
from crowdfl.roles.ports import ManualClock
from crowdfl.roles.records import DisputeState, PaymentState, Round, RoundState, StoredDispute, StoredPayment, Trouble
from crowdfl.roles.sp import why
from crowdfl.roles.sp.ledger import Ledger
from crowdfl.services.http.wire import PROTOCOL_HEADER
from crowdfl.services.server import running
from crowdfl.web import events, overview, pages
from tests.hosts import INITIAL_MODEL
from tests.http import conftest as http
from tests.http.world import DEPOSIT, task_definition
from tests.subprocesses import until
from tests.web.consoles import ConsoleWorld, Operator

portal, logged = http.portal, http.logged
MARKUP = '<img src=x onerror="alert(1)">&amp; "quoted"'


@pytest.fixture(scope="module")
def shared(tmp_path_factory, portal):
    """A platform that tests only look at: a task whose first round is open, with one upload."""
    world = ConsoleWorld(tmp_path_factory.mktemp("console"), portal)
    world.task, world.crowd = world.open_round()
    world.crowd[0].sp.upload(world.task, 1, world.crowd[0].update())
    yield world
    world.close()


@pytest.fixture
def world(tmp_path, portal):
    world = ConsoleWorld(tmp_path, portal)
    yield world
    world.close()


def announced(world: ConsoleWorld, purpose: str = "steps", amount: int = DEPOSIT) -> str:
    task = world.create(replace(task_definition(), purpose=purpose), INITIAL_MODEL)
    world.requester.fund(task, amount, "first")
    return task


# What it shows.


def test_the_overview_has_every_task_and_what_it_waits_for(shared):
    row = shared.console.overview.sections()["tasks"][shared.task]
    assert (row["state"], row["round"], row["rounds"], row["round_state"]) == ("running", 1, 1, "open")
    assert (row["uploads"], row["enrolled"]) == (1, 3)
    assert [one["code"] for one in row["waits_for"]] == ["uploads_until"]


def test_an_upload_is_shown_with_the_time_that_this_process_saw(shared):
    """The store keeps none."""
    (upload,) = shared.operator().get(f"tasks/{shared.task}/rounds/1/uploads").json()
    assert upload == {"who": shared.crowd[0].who, "late": False, "at": shared.clock.now()}
    (arrival,) = shared.console.overview.sections()["arrivals"].values()
    assert (arrival["who"], arrival["number"]) == (shared.crowd[0].who, 1)


def test_a_refused_upload_is_shown_with_its_reason_and_counted(world):
    """A stranger's is only counted: anyone can send one."""
    task, people = world.open_round()
    late = people[0].update()
    world.clock.time += 10_000.0
    for _ in range(2):
        with contextlib.suppress(Exception):
            people[0].sp.upload(task, 1, late)
    place = f"/v1/tasks/{task}/rounds/1/uploads/{people[1].who}"
    for headers in ({}, {PROTOCOL_HEADER: "99"}):  # the latter is refused before anyone asks who sent it
        assert world.http("sp").put(place, content=b"x", headers=headers).status_code in (401, 426)
    (refusal,) = world.operator().get(f"tasks/{task}").json()["refusals"]
    assert (refusal["who"], refusal["times"], refusal["number"]) == (people[0].who, 2, 1)
    assert "round 1" in refusal["reason"]
    assert world.console.overview.history.strangers == 2
    assert world.console.overview.sections()["health"]["strangers"]["count"] == 1


def test_what_the_servers_left_out_is_shown_with_the_reason(shared):
    """Of a round that has been checked, as both servers decided; and what was damaged here, or withdrawn."""
    world, task = shared, shared.task
    closed = replace(world.sp.store.round(task, 1), state=RoundState.CLOSED)
    shown = overview.Overview(world.console.parts, world.console.actions, world.console.overview.history)
    reasons = {"a" * 20: Reason.DAMAGED, "b" * 20: Reason.BROKEN_SEAL, "c" * 20: Reason.WITHDRAWN}
    row = shown.round(task, closed, 3, reasons)
    assert row["rejected"] == 3
    assert row["rejections"] == [
        {"who": "a" * 20, "why": "damaged"},
        {"who": "b" * 20, "why": "broken_seal"},
        {"who": "c" * 20, "why": "withdrawn"},
    ]


def names(steps: list[dict]) -> dict[str, float | None]:
    return {step["name"]: step["at"] for step in steps if step["done"]}


def test_a_rounds_steps_have_the_times_that_were_seen_and_no_invented_ones():
    """Before this process began nothing was seen: the state says what is done."""
    now = Round(1, 50.0)
    assert names(overview.steps_of(now, {}, pays=True)) == {"open": 50.0}
    weighed = overview.steps_of(replace(now, state=RoundState.WEIGHED), {"checked": 70.0}, pays=True)
    assert names(weighed) == {"open": 50.0, "closed": None, "checked": 70.0}
    over = replace(now, state=RoundState.REWARDED)
    assert names(overview.steps_of(over, {"averaged": 80.0, "rewarded": 90.0}, pays=False)) == {
        "open": 50.0,
        "closed": None,
        "checked": 80.0,
        "averaged": 80.0,
        "published": 90.0,
    }
    assert list(names(overview.steps_of(over, {}, pays=True))) == [
        "open",
        "closed",
        "checked",
        "averaged",
        "published",
        "rewarded",
    ]
    gone = replace(now, state=RoundState.ABORTED)
    assert names(overview.steps_of(gone, {"closed": 60.0, "aborted": 70.0}, pays=True)) == {
        "open": 50.0,
        "closed": 60.0,
        "aborted": 70.0,
    }


def test_the_ledger_is_shown_by_round_without_what_one_participant_got():
    """Sums in millionths, as text: they may be longer than a browser's numbers."""
    books = Ledger()
    large = 10**16 + 1
    for make in (
        lambda: books.deposit("first", large),
        lambda: books.fund_round(1, 36),
        lambda: books.reward_round(1),
        lambda: books.pay("aa", 1, 10),
        lambda: books.pay("bb", 1, 20),
        lambda: books.fund_round(2, 36),
        lambda: books.abort_round(2),
    ):
        books.post(make())
    found = overview.ledger_by_round(books)
    second, first = found.pop("rounds")
    assert found == {"escrow": str(large - 36), "paid_in": str(large), "offered": "36", "earned": "30"}
    assert (second["number"], second["funded"], second["returned"], second["unclaimed"]) == (2, "36", "36", "0")
    assert (first["offered"], first["earned"], first["unclaimed"]) == ("36", "30", "6")
    assert "aa" not in json.dumps([first, second])


def test_a_task_says_why_it_waits_and_what_can_be_typed(world):
    """As the command does: whom it waits for, since when, what was tried. What keeps all tasks waiting comes first."""
    task = announced(world)
    people, deposit = world.operator().get(f"tasks/{task}").json()["why"]
    assert (people["wait"]["code"], deposit["wait"]["code"]) == ("people", "deposit")
    assert deposit["do"] == [f"crowdfl sp deposit confirm SETTINGS {task} first 80.00 EUR"]
    world.sp.store.note_trouble(Trouble(task, "", 1.0, 2.0, 3, "StorageFull", "no space"))
    disk, *_ = world.operator().get(f"tasks/{task}").json()["why"]
    assert (disk["wait"]["code"], disk["since"], disk["do"]) == ("disk", 1.0, ["df -h"])
    assert [(one["times"], one["error"]) for one in disk["tried"]] == [(3, "StorageFull")]


def test_the_page_has_words_for_what_the_command_adds():
    """In each language: a code without words would show as a code."""
    codes = set(re.findall(r"Wait\.of\(\s*\"(\w+)\"", inspect.getsource(why)))
    assert codes == {"disk", "guard", "clock", "reference", "payment"}
    for text in sorted((Path(pages.__file__).parent / "console" / "text").glob("*.js")):
        words = text.read_text(encoding="utf-8").partition("  wait: {")[2].partition("\n  },")[0]
        assert codes <= set(re.findall(r"^    (\w+):", words, re.M)), text.name


def test_a_peer_that_is_away_is_ill(shared):
    csp = shared.breakers[1]
    for _ in range(3):
        csp.record(answered=False)
    health = shared.console.overview.sections()["health"]
    assert (health["KGC"]["well"], health["CSP"]["well"]) == (True, False)
    assert health["CSP"]["code"] in ("away", "trying")
    assert health["CSP"]["since"] == pytest.approx(time.time(), abs=300)
    csp.record(answered=True)
    assert shared.console.overview.sections()["health"]["CSP"]["well"]


def test_markup_of_a_requester_arrives_as_text(world):
    """JSON's strings, byte for byte: the page makes text nodes of them."""
    task = announced(world, purpose=f"{MARKUP}\n\x00</script>")
    answer = world.operator().get(f"tasks/{task}")
    assert answer.json()["purpose"] == f"{MARKUP} ?</script>"
    line = events.message("snapshot", {"tasks": {task: answer.json()}})
    assert line.count("\n") == 3  # nobody can begin another event


def test_an_unknown_task_is_a_named_problem(shared):
    operator = shared.operator()
    for path in ("", "/held", "/rounds/1/uploads"):
        assert operator.get(f"tasks/{'0' * 64}{path}").status_code == 404


# What it does.


def test_a_deposit_is_confirmed_by_the_amount_and_the_currency_that_came_in(world, logged):
    """Another amount is refused in words; the log has the operator's name, and the ledger the money."""
    task = announced(world)
    operator, place = world.operator(), f"tasks/{task}/deposits/first"
    assert world.console.overview.sections()["deposits"][f"{task} first"]["state"] == "pending"
    for wrong in ("79.99", "eighty", "-80", "1e9", ""):
        assert operator.post(f"{place}/confirmation", {"amount": wrong, "currency": "EUR"}).status_code in (409, 422)
    for other in ({"amount": "80", "currency": "USD"}, {"amount": "80"}):
        assert operator.post(f"{place}/confirmation", other).status_code in (409, 422)
    assert world.sp.core.ledger(task).balances() == {}
    for _ in range(2):
        assert operator.post(f"{place}/confirmation", {"amount": "80", "currency": "EUR"}).status_code == 204
    assert world.sp.core.ledger(task).balances() == {"requester": -DEPOSIT, "escrow": DEPOSIT}
    assert operator.post(f"{place}/rejection").status_code == 409  # decided before, and final
    actions = [line for line in logged if line["event"] == "console action"]
    assert [(line["operator"], line["did"]) for line in actions] == [("the operator", "confirmed a deposit")] * 2


def test_a_task_is_cancelled_with_a_reason_and_its_first_characters(world):
    """Its open round is aborted, its money returns to escrow, and everyone can read why."""
    task, _ = world.open_round()
    operator, place = world.operator(), f"tasks/{task}/cancellation"
    for wrong in (
        {"begins": task[:5], "reason": "x"},
        {"begins": "0" * 64 if task[0] != "0" else "1" * 64, "reason": "x"},
        {"begins": task[:6], "reason": " "},
        {"begins": task[:6], "reason": "a\nb"},
        {"begins": task[:6], "reason": "x" * 501},
        {"begins": task[:6]},
        {"reason": "x"},
    ):
        assert operator.post(place, wrong).status_code == 422
    assert world.sp.store.task(task).state == "running"
    for _ in range(2):
        assert operator.post(place, {"begins": task[:6], "reason": "the sensor lies"}).status_code == 204
    about = operator.get(f"tasks/{task}").json()
    assert about["state"] == "cancelled"
    assert about["ended"] == {"why": "cancelled", "by": "sp_operator", "reason": "the sensor lies"}
    assert about["timeline"][0]["state"] == "aborted"
    assert world.sp.core.ledger(task).balance("escrow") == DEPOSIT


def test_a_stuck_round_is_asked_for_again_or_given_up(world):
    """Its task goes on. What is over, or not the last, is neither."""
    task, _ = world.open_round()
    operator, place = world.operator(), f"tasks/{task}/rounds/1/retry"
    assert operator.post(place, {"begins": "nothing", "void": True}).status_code == 422
    assert operator.post(f"tasks/{task}/rounds/2/retry", {"begins": task[:6], "void": True}).status_code == 409
    assert operator.post(place, {"begins": task[:6], "void": False}).status_code == 204
    assert world.sp.store.round(task, 1).state == "open"
    assert operator.post(place, {"begins": task[:6], "void": True}).status_code == 204
    assert (world.sp.store.round(task, 1).state, world.sp.store.task(task).state) == ("aborted", "running")
    assert world.sp.core.ledger(task).balance("escrow") == DEPOSIT
    assert operator.post(place, {"begins": task[:6], "void": True}).status_code == 409


def test_a_payment_that_is_unknown_waits_for_the_operators_word(world):
    task = announced(world)
    for who, state, error in (
        ("a" * 20, "pending", None),
        ("b" * 20, "unknown", "it took too long"),
        ("c" * 20, "paid", None),
    ):
        world.sp.store.add_payment(
            StoredPayment(task, who, 3, 7_000_000, 500_000, PaymentState(state), 5.0, attempts=1, error=error)
        )
    operator, sections = world.operator(), world.console.overview.sections()
    assert [row["who"][0] for row in sections["payments"].values()] == ["b", "a"]
    assert [(row["sequence"], row["on_sp_word"]) for row in sections["payments"].values()] == [(3, "500000")] * 2
    assert {row["state"]: row["amount"] for row in sections["payouts"].values()} == {
        "waiting": "7000000",
        "failed": "7000000",
    }
    place = f"tasks/{task}/payments/{'b' * 20}/resolution"
    assert operator.post(place, {"how": "maybe"}).status_code == 422
    assert operator.post(place, {"how": "again"}).status_code == 204
    assert operator.post(place, {"how": "paid"}).status_code == 204
    assert operator.post(place, {"how": "again"}).status_code == 409
    assert operator.post(f"tasks/{task}/payments/{'d' * 20}/resolution", {"how": "paid"}).status_code == 404
    assert [row["who"][0] for row in world.console.overview.sections()["payments"].values()] == ["a"]


def test_a_dispute_is_decided_with_both_proofs_at_hand(world):
    """What is decided is listed no more, and is decided for good."""
    task, who = announced(world), "a" * 20
    for number in (1, 2):
        books = json.dumps({"round": "rewarded", "upload": None, "owed": 0, "held": 0})
        store = world.sp.store
        store.add_dispute(StoredDispute(task, who, number, 250_000, b"claim", books, DisputeState.OPEN, 5.0))
    operator, place = world.operator(), f"tasks/{task}/disputes/{who}"
    found = world.console.overview.sections()["disputes"][f"{task} {who} 1"]
    assert (found["amount"], found["held"], found["owed"], found["counted"]) == ("250000", "0", "0", False)
    proofs = operator.get(f"{place}/1")
    assert "attachment" in proofs.headers["content-disposition"]
    assert proofs.json() == found | {"claim": "Y2xhaW0="}
    assert operator.get(f"{place}/3").status_code == 404
    assert operator.post(f"{place}/1/resolution", {"how": "maybe"}).status_code == 422
    assert operator.post(f"{place}/1/resolution", {"how": "pay"}).status_code == 409  # nothing is held
    for _ in range(2):
        assert operator.post(f"{place}/1/resolution", {"how": "refuse"}).status_code == 204
    assert operator.post(f"{place}/1/resolution", {"how": "pay"}).status_code == 409
    assert [row["number"] for row in operator.get(f"tasks/{task}").json()["disputes"]] == [2]


# How a browser hears of it.


@pytest.fixture
def watching(world):
    """An operator over a real connection, and the platform."""
    with world.served() as url, httpx.Client(base_url=url, timeout=60) as http:
        operator = Operator(http)
        assert operator.log_in(world.token("sp", "operator").token).status_code == 204
        yield operator


def test_a_stream_begins_with_everything_and_goes_on_with_what_changes(world, watching):
    """Also of what another process or a command does to the store; a new connection begins with everything again."""
    task, people = world.open_round()
    with watching.watch() as heard:
        assert heard.answer.headers["content-type"].startswith("text/event-stream")
        assert heard.answer.headers["cache-control"] == "no-store"
        event, everything = heard.next()
        assert (event, everything["tasks"][task]["uploads"]) == ("snapshot", 0)
        people[0].sp.upload(task, 1, people[0].update())
        (arrival,) = heard.until("arrivals").values()
        assert arrival["who"] == people[0].who
        command = world.disk.open_store("sp", f"sqlite:///{world.folder}/sp/state.db")
        with contextlib.closing(command):
            command.change_task(task, state="paused")
        assert heard.until("tasks")[task]["state"] == "paused"
    with watching.watch() as heard:
        event, everything = heard.next()
        assert (event, everything["tasks"][task]["state"]) == ("snapshot", "paused")


def test_a_stream_ends_with_its_session(world, watching):
    """And says so, so that the page does not come back for ever."""
    with watching.watch() as heard:
        heard.next()
        world.tokens["sp"][0].revoke("the operator")
        assert heard.rest()[-1] == "ended"
    assert watching.get("events").status_code == 401


def test_a_store_that_is_away_is_said_and_all_is_told_when_it_is_back(world, watching):
    snapshots = world.console.streams.snapshots
    good = snapshots.look

    def bad() -> events.Sections:
        raise StoreUnavailable("the database is away")

    with watching.watch() as heard:
        assert heard.next()[0] == "snapshot"
        snapshots.look = bad
        assert heard.next()[0] == "trouble"
        snapshots.look = good
        assert "snapshot" in (heard.next()[0] for _ in range(100))


def test_streams_are_few_and_one_that_ends_makes_room(world, watching):
    streams = world.console.streams
    streams.most = 2
    with watching.watch() as first, watching.watch() as second:
        first.next()
        second.next()
        assert watching.get("events").status_code == 503
    until(lambda: not streams.open)
    with watching.watch() as again:
        assert again.next()[0] == "snapshot"


def test_a_stream_that_waits_holds_no_thread_and_no_connection_to_the_store(world, watching):
    world.console.streams.pulse = 1000.0
    with contextlib.ExitStack() as stack:
        for _ in range(world.console.streams.most):
            stack.enter_context(watching.watch()).next()
        pool = world.sp.store.engine.pool
        until(lambda: pool.checkedout() == 0)
        looked = world.console.streams.snapshots
        with looked.lock:  # nobody looks now, and nobody waits in a thread for it
            names = [thread.name for thread in threading.enumerate()]
        assert len([name for name in names if "AnyIO" in name]) < world.console.streams.most


def test_the_server_stops_although_streams_are_open(world, caplog):
    """Each is ended as it should be, not cut off when uvicorn's patience ends."""
    world.console.streams.pulse = 1000.0
    with contextlib.ExitStack() as stack:
        serving = stack.enter_context(contextlib.ExitStack())
        url = serving.enter_context(running(world.apps["sp"], world.settings))
        operator = Operator(stack.enter_context(httpx.Client(base_url=url, timeout=60)))
        operator.log_in(world.token("sp", "operator").token)
        heard = stack.enter_context(operator.watch())
        heard.next()
        serving.close()
        assert heard.rest() == []
    assert "Cancel" not in caplog.text


def test_looking_takes_a_tenth_of_the_time_at_most():
    clock, count = ManualClock(0.0), []

    def look() -> events.Sections:
        count.append(clock.time)
        clock.time += 3.0
        return {}

    snapshots = events.Snapshots(look, clock=clock.now)
    for _ in range(100):
        snapshots()
        clock.time += 1.0
    assert count == [0.0, 33.0, 66.0, 99.0]


def test_a_difference_has_what_is_new_changed_and_gone():
    known = {"tasks": {"a": {"x": 1}, "b": {"x": 1}}, "news": {}}
    fresh = {"tasks": {"a": {"x": 2}, "c": {"x": 1}}, "news": {}}
    assert events.difference(known, fresh) == {"tasks": {"changed": {"a": {"x": 2}, "c": {"x": 1}}, "gone": ["b"]}}
    assert events.difference(fresh, fresh) == {}


def test_what_is_remembered_has_a_bound():
    history = events.EventHistory(lambda: 1.0)
    for number in range(6_000):
        history.arrived("t", 1, str(number))
        history.hear("round closed", task="t", number=number)
        history.refused("t", number, "who", Forbidden("no"))
    assert history.arrival("t", 1, "0") is None
    assert history.arrival("t", 1, "5999") == 1.0
    assert (history.steps("t", 0), history.steps("t", 5_999)) == ({}, {"closed": 1.0})
    assert len(history.refusals("t")) == 200
    assert all(len(rows) == 50 for rows in history.sections().values())


def test_an_event_keeps_nothing_but_known_fields():
    """An amount that somebody earned would not be shown even if it were history."""
    history = events.EventHistory(lambda: 1.0)
    history.hear("payment paid", task="t", who="w", amount=7, weights="x")
    (row,) = history.sections()["news"].values()
    assert row == {"id": 1, "at": 1.0, "event": "payment paid", "task": "t", "who": "w"}
