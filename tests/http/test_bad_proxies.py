"""Something between SP and CSP answers in CSP's place, or cuts what it says: SP records nothing of it, and asks again."""

from collections.abc import Callable
from itertools import cycle
from typing import Any

import httpx
import pytest

from crowdfl.errors import ReplyUnreadable, ServiceUnavailable
from crowdfl.services.client.peers import CspClient
from tests.http.world import INITIAL_MODEL, World

PAGE = b"<!doctype html><title>Please sign in</title>"


def altered(response: httpx.Response, content: bytes, **headers: str) -> httpx.Response:
    """With the right headers of the wrong body: nothing but the body tells."""
    kept = {name: value for name, value in response.headers.items() if name != "content-length"}
    return httpx.Response(200, headers=kept | headers, content=content)


Wrong = Callable[[httpx.Response, httpx.Response], httpx.Response]
EITHER = (ServiceUnavailable, ReplyUnreadable)  # as it may be longer than any answer of this step
WRONG: dict[str, tuple[Wrong, type[Exception] | tuple[type[Exception], ...]]] = {
    "a page": (lambda found, _: altered(found, PAGE, **{"content-type": "text/html"}), ServiceUnavailable),
    "a page that says it is an answer": (lambda found, _: altered(found, PAGE), ServiceUnavailable),
    "a part": (lambda found, _: altered(found, found.content[:-1]), ServiceUnavailable),
    "nothing": (lambda found, _: altered(found, b""), ServiceUnavailable),
    "too much": (lambda found, _: altered(found, found.content + bytes(1 << 22)), ReplyUnreadable),
    "another request's": (lambda _, last: last, EITHER),
}


class BadProxy(httpx.BaseTransport):
    """Of every answer of CSP's, a wrong one comes first, of each kind in turn."""

    def __init__(self, inner: httpx.BaseTransport, kinds: list[str]) -> None:
        self._inner, self._kinds, self.refused = inner, cycle(kinds), dict[bytes, Any]()
        self._last = httpx.Response(200, headers={"content-type": "application/octet-stream"}, content=PAGE)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        body = request.read()
        found = self._inner.handle_request(request)
        if not request.url.path.endswith("/requests") or found.status_code != 200:
            return found
        if body in self.refused:
            self._last = httpx.Response(200, headers=found.headers, content=found.content)
            return found
        wrong, self.refused[body] = WRONG[next(self._kinds)]
        return wrong(found, self._last)


@pytest.mark.parametrize("kinds", [list(WRONG)[:3], list(WRONG)[3:]], ids=["pages and parts", "others"])
def test_a_bad_proxy_costs_retries_and_no_round(
    world: World, monkeypatch: pytest.MonkeyPatch, kinds: list[str]
) -> None:
    task, people = world.open_round(people=4, lanes=256, max_norm=2.0)
    client = world.sp.ports.csp
    assert isinstance(client, CspClient)
    proxy = BadProxy(client.service.http._transport, kinds)
    monkeypatch.setattr(client.service.http, "_transport", proxy)
    for person in people:
        person.participant.step(lambda arrays, _settings, _number: (INITIAL_MODEL, 5))
    raised = list[Exception]()
    for _ in range(50):
        recorded = world.sp.store.replies(task, 1)
        try:
            world.run()
        except (ReplyUnreadable, ServiceUnavailable) as error:
            raised.append(error)
            assert world.sp.store.replies(task, 1).keys() >= recorded.keys()
        else:
            break
    assert str(world.sp.store.round(task, 1).state) == "rewarded"
    assert len(raised) == len(proxy.refused) > 3
    assert all(map(isinstance, raised, proxy.refused.values()))
