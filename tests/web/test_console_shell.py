"""What both consoles share: who gets in, and what a browser is told; then what each has of its own."""

import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass

import httpx
import pytest
from fastapi import FastAPI

from crowdfl.errors import NotAuthenticated
from crowdfl.roles.ports import ManualClock
from crowdfl.services.http.auth import Tokens
from crowdfl.settings import TOKEN_ROLES
from crowdfl.storage.sql import SqlStore
from crowdfl.web.shell import HEADER, LoginLimit, OneBrowser, Session, Sessions
from tests.http import conftest as http
from tests.web.consoles import ConsoleWorld, Office, Operator, PageClient, office_over, problem

portal, logged = http.portal, http.logged
COOKIE = "__Secure-crowdfl-console"
NAMES = {
    **{"{task}": "0" * 64, "{name}": "0" * 16, "{form}": "npz", "{number}": "1", "{who}": "0" * 20, "{first}": "0"},
    "{payment}": "0" * 32,
    "{language}": "en",
}


@pytest.fixture(scope="module")
def world(tmp_path_factory, portal) -> Iterator[ConsoleWorld]:
    """A platform with a task whose first round is open."""
    world = ConsoleWorld(tmp_path_factory.mktemp("operator"), portal)
    world.task, world.crowd = world.open_round()
    yield world
    world.close()


@pytest.fixture(scope="module")
def office(tmp_path_factory, portal) -> Iterator[Office]:
    with office_over(tmp_path_factory.mktemp("requester"), portal) as office:
        yield office


@dataclass
class Shell:
    app: FastAPI
    open: PageClient
    closed: PageClient
    page: str

    def routes(self) -> list[tuple[str, str]]:
        """Method and path of each call but the login's, with names filled in."""
        found = [
            (method, re.sub(r"\{\w+\}", lambda name: NAMES[name[0]], route.path))
            for router in self.app.routes
            for route in getattr(getattr(router, "original_router", None), "routes", ())
            for method in route.methods
        ]
        calls = [(method, path.removeprefix(f"{self.open.base}/")) for method, path in found]
        return sorted(call for call in calls if call[1] != "session")


@pytest.fixture(params=["operator", "requester"])
def shell(request, world, office) -> Shell:
    """With a page that is logged in, and one that is not."""
    if request.param == "operator":
        world.console.guard.limit.__init__()
        return Shell(world.apps["sp"], world.operator(), world.operator(logged_in=False), "/console/")
    browser = office.browser()
    return Shell(browser.app, browser, office.browser(browser.session, opened=False), "/")


def test_nothing_is_shown_or_done_without_a_session(shell):
    """The answer is the same for every cookie that opens nothing; an operator token in a header opens nothing either."""
    routes = shell.routes()
    assert len(routes) >= 9
    own = next(iter(shell.open.http.cookies))
    for cookie in (None, "", "guess", "A" * 43):
        shell.closed.headers |= {} if cookie is None else {"Cookie": f"{own}={cookie}"}
        for method, path in routes:
            answer = (shell.closed.post if method == "POST" else shell.closed.get)(path)
            assert (answer.status_code, problem(answer)) == (401, "not-authenticated"), (method, path)


FORGED: dict[str, tuple[str, str | None]] = {
    "without the page's header": (HEADER, None),
    "without an origin": ("Origin", None),
    "of no origin": ("Origin", "null"),
    "of another host": ("Origin", "https://evil.example"),
    "of another port": ("Origin", "http://127.0.0.1:8000"),
    "of a longer host": ("Origin", "https://service.evil.example"),
    "that the browser calls cross-site": ("Sec-Fetch-Site", "cross-site"),
    "of another host of the site": ("Sec-Fetch-Site", "same-site"),
    "that was typed into the address bar": ("Sec-Fetch-Site", "none"),
}


@pytest.mark.parametrize("change", FORGED.values(), ids=FORGED)
def test_a_request_of_another_page_is_refused_whatever_cookie_it_carries(shell, change):
    """Each call that changes something; and reading, where a browser says that another site asks."""
    name, value = change
    headers = {key: kept for key, kept in shell.open.headers.items() if key != name} | ({name: value} if value else {})
    for method, path in shell.routes():
        if method == "POST" or name == "Sec-Fetch-Site":
            answer = shell.open.http.request(method, f"{shell.open.base}/{path}", headers=headers, json={})
            assert (answer.status_code, problem(answer)) == (403, "forbidden"), (method, path)


def test_the_consoles_own_page_is_let_in(shell):
    """Also by an older browser, which does not say which site asks. What it gets is never kept or taken for a page."""
    del shell.open.headers["Sec-Fetch-Site"]
    answers = [shell.open.get(path) for path in ("session", "overview")]
    found = next(answer for answer in answers if answer.status_code == 200)
    assert found.headers["content-type"] == "application/json"
    assert found.headers["cache-control"] == "no-store"
    assert found.headers["x-content-type-options"] == "nosniff"
    assert found.headers["cross-origin-resource-policy"] == "same-origin"
    assert "access-control-allow-origin" not in found.headers


def test_the_page_and_its_files_are_served_to_everyone_under_a_strict_policy(shell):
    """They hold nothing; data needs a session. No script, style or address of anyone else."""
    page = shell.closed.http.get(shell.page).text
    assert not re.search(r"<script(?![^>]*\ssrc=)|\sstyle=|<style|\son\w+=|https?://", page)
    names = re.findall(r'(?:src|href)="([^":#]+)"', page)
    assert len(names) >= 3
    for name in ("", *names):
        answer = shell.closed.http.get(httpx.URL(f"https://x{shell.page}").join(name).path)
        assert answer.status_code == 200, name
        policy = dict(part.strip().split(" ", 1) for part in answer.headers["content-security-policy"].split(";"))
        assert policy["default-src"] == policy["base-uri"] == "'none'"
        assert policy["frame-ancestors"] == policy["frame-src"]
        assert policy["frame-src"] in ("'none'", "'self'")  # the requester's shows the phone's page inside its own
        assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
        assert policy["form-action"] == "'none'"
        assert answer.headers["referrer-policy"] == "no-referrer"
    for path in ("../pages.py", "%2e%2e/pages.py", "console_app.py", "nothing.js", ".hidden"):
        assert shell.closed.http.get(f"{shell.page}{path}").status_code == 404


# The operator's sessions.


def test_a_token_opens_a_session_by_a_cookie_that_scripts_and_other_sites_do_not_get(world):
    """Each login has its own; what the server keeps of it is a hash. The API's description says nothing of the console."""
    values = []
    for _ in range(2):
        answer = world.operator(logged_in=False).log_in(world.token("sp", "operator").token)
        name, _, rest = answer.headers["set-cookie"].partition("=")
        value, *flags = rest.split("; ")
        assert name == COOKIE
        assert {flag.lower() for flag in flags} == {"httponly", "secure", "samesite=strict", "path=/console"}
        values.append(value)
    assert len(set(values)) == 2
    assert all(len(value) == 43 for value in values)  # 256 bits
    assert not any(value in repr(world.console) for value in values)
    assert not [path for path in world.apps["sp"].openapi()["paths"] if path.startswith("/console")]


def test_over_plain_http_the_cookie_is_secure_only_where_a_proxy_speaks_tls(world):
    """A browser would not send it back: plain HTTP is for loopback. It says itself that its page is https."""
    with world.served() as url, httpx.Client(base_url=url, timeout=60) as http:
        operator = Operator(http)
        cookie = operator.log_in(world.token("sp", "operator").token).headers["set-cookie"]
        assert cookie.startswith("crowdfl-console=")
        assert "secure" not in cookie.lower()
        assert operator.get("session").status_code == 200
        operator.headers["Origin"] = operator.headers["Origin"].replace("http://", "https://")
        cookie = operator.log_in(world.token("sp", "operator").token).headers["set-cookie"]
        assert cookie.startswith(f"{COOKIE}=")
        assert "secure" in cookie.lower()
        assert operator.get("session", Cookie=cookie.partition(";")[0]).status_code == 200


def test_over_tls_the_cookies_plain_name_and_a_page_of_plain_http_open_nothing(world):
    operator = world.operator()
    assert operator.post("session", {}, Origin="http://service").status_code == 403
    value = operator.http.cookies[COOKIE]
    operator.http.cookies.clear()
    operator.http.cookies.set("crowdfl-console", value)
    assert operator.get("session").status_code == 401


def test_no_other_role_gets_in(world):
    for role in TOKEN_ROLES:
        operator = world.operator(logged_in=False)
        answer = operator.log_in(world.token("sp", role).token)
        assert (answer.status_code, "set-cookie" in answer.headers) == (
            (204, True) if role == "operator" else (403, False)
        )
        assert operator.get("session").status_code == (200 if role == "operator" else 401)


def test_logging_out_ends_the_session_and_only_that_one(world):
    """On the server too: the cookie of before opens nothing. So does a second login of the same browser."""
    one, other, again = (world.operator() for _ in range(3))
    before = [browser.http.cookies[COOKIE] for browser in (one, again)]
    answer = one.log_out()
    assert (answer.status_code, 'crowdfl-console=""' in answer.headers["set-cookie"]) == (204, True)
    again.log_in(world.token("sp", "operator").token)
    for value in before:
        assert world.operator(logged_in=False).get("session", Cookie=f"{COOKIE}={value}").status_code == 401
    assert [browser.get("session").status_code for browser in (one, other, again)] == [401, 200, 200]
    assert one.log_out().status_code == 204  # safe to repeat


def test_a_revoked_or_replaced_token_ends_its_sessions_at_once(world):
    """The token's entry is looked up at each request; another holder's session goes on."""
    tokens, given = world.tokens["sp"][0], {}
    people = {name: world.operator(logged_in=False) for name in ("ann", "bob", "cy")}
    for name, one in people.items():
        given[name] = tokens.add(name, "operator")
        one.log_in(given[name])
    tokens.revoke("ann")
    tokens.rotate("bob")
    assert [one.get("session").status_code for one in people.values()] == [401, 401, 200]
    digest = tokens.check(given["cy"]).sha256
    tokens.revoke("cy")
    tokens.accept("cy", "requester", digest)
    assert people["cy"].get("session").status_code == 401


def test_wrong_tokens_are_limited_by_address_and_keep_no_operator_out(world, logged):
    """Behind a proxy all people have one address: a stranger there must not close the console. No token is logged."""
    operator = world.operator(logged_in=False)
    world.console.guard.limit.__init__()
    codes = [operator.log_in(f"crowdfl_guess{number}").status_code for number in range(12)]
    assert codes == [401] * 10 + [429] * 2
    answer = operator.log_in("crowdfl_guess")
    assert 0 < int(answer.headers["retry-after"]) <= 61
    assert "still opens" in answer.json()["title"]
    assert "guess" not in repr(logged)
    assert repr(logged).count("console login refused") == 10
    assert operator.log_in(world.token("sp", "operator").token).status_code == 204


def test_the_limit_forgets_after_its_time_and_keeps_a_bounded_list():
    clock = ManualClock()
    limit = LoginLimit(most=2, seconds=10.0, addresses=3, now=clock.now)
    for _ in range(2):
        limit.record("a")
    with pytest.raises(Exception, match="Many wrong"):
        limit.record("a")
    limit.record("b")
    clock.time = 11.0
    limit.record("a")
    for number in range(10):
        limit.record(str(number))
    assert len(limit._seen) == 3


@pytest.fixture
def sessions(tmp_path):
    """With a clock of the test's, and a token."""
    tokens, clock = Tokens(tmp_path / "tokens.json"), ManualClock()
    found = Sessions(tokens, SqlStore.in_memory(), idle=10.0, longest=100.0, most=3, now=clock.now)
    found.clock, found.secret = clock, tokens.add("ann", "operator")  # type: ignore[attr-defined]
    return found


def is_open(sessions: Sessions, value: str, *, using: bool = False) -> bool:
    with contextlib.suppress(NotAuthenticated):
        return isinstance(sessions.find(value, using=using), Session)
    return False


def test_a_session_ends_when_its_operator_does_nothing(sessions):
    value = sessions.begin(sessions.secret)
    for _ in range(3):
        sessions.clock.time += 8.0
        assert is_open(sessions, value, using=True)
    sessions.clock.time += 6.0
    assert is_open(sessions, value)
    sessions.clock.time += 6.0
    assert not is_open(sessions, value)
    assert not is_open(sessions, value, using=True)


def test_a_session_ends_after_a_day_however_busy(sessions):
    value = sessions.begin(sessions.secret)
    while sessions.clock.time < 100.0:
        assert is_open(sessions, value, using=True)
        sessions.clock.time += 5.0
    sessions.clock.time += 1.0
    assert not is_open(sessions, value, using=True)


def test_sessions_are_few_and_the_longest_unused_makes_room(sessions):
    opened = []
    for _ in range(3):
        opened.append(sessions.begin(sessions.secret))
        sessions.clock.time += 1.0
    first, second, third = opened
    assert is_open(sessions, first, using=True)
    fourth = sessions.begin(sessions.secret)
    assert [is_open(sessions, one) for one in (first, second, third, fourth)] == [True, False, True, True]


def test_a_session_holds_at_every_process_of_the_service(sessions):
    value, other = sessions.begin(sessions.secret), Sessions(sessions.tokens, sessions.store, now=sessions.now)
    assert is_open(other, value)
    other.end(value)
    assert not is_open(sessions, value)


def test_a_session_ends_when_its_token_expires(sessions):
    value = sessions.begin(sessions.secret)
    wall = ManualClock(1_000.0)
    sessions.tokens.now = wall.now
    sessions.tokens.rotate("ann", overlap=5.0)
    assert is_open(sessions, value)
    wall.time += 6.0
    assert not is_open(sessions, value)


# The requester's one page.


@pytest.mark.parametrize("host", ["localhost:7999", "evil.example", "127.0.0.1.evil.example:7999"])
def test_a_name_that_somebody_points_at_this_machine_opens_nothing(office, host):
    """DNS rebinding: the browser would take another site's page for this one."""
    browser = office.browser()
    for path in ("/", "/main.js", "/api/overview"):
        answer = browser.http.get(path, headers=browser.headers | {"Host": host})
        assert answer.status_code == 400
        assert "tasks" not in answer.text


def test_the_printed_secret_opens_one_session_once(office):
    session = OneBrowser(7999)
    first, second = (office.browser(session, opened=False) for _ in range(2))
    address = session.address
    assert re.fullmatch(r"http://127\.0\.0\.1:7999/#open=[\w-]{40,}", address)
    assert first.post("session", {"secret": "wrong"}).status_code == 401
    answer = first.open()
    _, *flags = answer.headers["set-cookie"].split("; ")
    assert {flag.lower() for flag in flags} == {"httponly", "samesite=strict", "path=/api"}
    assert first.get("overview").status_code == 200
    again = second.post("session", {"secret": address.partition("=")[2]})
    assert (again.status_code, "Ctrl-C" in again.json()["detail"]) == (401, True)
    assert first.get("overview").status_code == 200


def test_neither_half_of_a_session_is_enough(office):
    """A browser sends cookies to every port of a host: whoever listens at another one has that half."""
    browser = office.browser(opened=False)
    answer = browser.open()
    half, cookie = answer.json()["half"], answer.cookies["crowdfl-console-7999"]
    assert half != cookie
    assert browser.get("overview", **{HEADER: cookie}).status_code == 401
    assert browser.get("overview", **{HEADER: "-"}).status_code == 401
    browser.http.cookies.clear()
    assert browser.get("overview").status_code == 401
    assert browser.get("overview", Cookie=f"crowdfl-console-7999={half}").status_code == 401
    assert browser.get("overview", Cookie=f"crowdfl-console-7999={cookie}").status_code == 200


@pytest.mark.parametrize(
    "other", ['theirs={"a": 1}', "a[1]=2", "bare", 'open="a b', "path=/", "crowdfl-console-7999=theirs"]
)
def test_a_cookie_of_another_program_on_this_machine_does_not_close_the_page(office, other):
    """A browser sends those of all ports, whatever they look like."""
    browser = office.browser()
    own = f"crowdfl-console-7999={browser.http.cookies['crowdfl-console-7999']}"
    browser.http.cookies.clear()
    for cookies in (f"{other}; {own}", f"{own}; {other}"):
        assert browser.get("form", Cookie=cookies).status_code == 200
    assert browser.get("form", Cookie=other).status_code == 401
