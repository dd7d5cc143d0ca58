"""What is not CSP's reply to a step is refused by name, kept nowhere and asked for again; the honest reply then counts."""

from collections.abc import Callable
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

from crowdfl.errors import FormatError, ReplyUnreadable
from crowdfl.protocols.messages import Message
from crowdfl.roles.sp.csp_link import replies_folder
from tests.hosts import HARDENED, Desk
from tests.protocols.driving import SMALL, converse, deal

SHARES = {"lanes": 256, "max_norm": 2.0}
PAGE = b"<!doctype html><title>502 Bad Gateway</title>"
Wrong = Callable[[bytes, bytes, int], bytes]
WRONG: dict[str, Wrong] = {
    "a proxy's page": lambda _reply, _last, _longest: PAGE,
    "nothing": lambda _reply, _last, _longest: b"",
    "a part": lambda reply, _last, _longest: reply[:-1],
    "a part of a header": lambda reply, _last, _longest: reply[:5],
    "more after it": lambda reply, _last, _longest: reply + b"\n",
    "too much": lambda reply, _last, longest: reply + bytes(longest),
    "the last step's": lambda _reply, last, _longest: last,
}


class BadProxy:
    """Between the servers: of every reply, a wrong one comes first, of each kind in turn."""

    def __init__(self, desk: Desk, wrong: list[Wrong]) -> None:
        self._csp, self._wrong, self._last, self.refused = desk.csp, cycle(wrong), PAGE, set[bytes]()
        desk.csp = self  # type: ignore[assignment]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._csp, name)

    def answer(self, task: str, request: bytes, longest: int) -> bytes:
        reply = self._csp.answer(task, request)
        if request in self.refused:
            self._last = reply
            return reply
        self.refused.add(request)
        return next(self._wrong)(reply, self._last, longest)


def kept(desk: Desk) -> list[Path]:
    return [file for file in (desk.folder / "sp/blobs" / replies_folder(desk.task, 1)).glob("*") if file.is_file()]


@pytest.mark.parametrize(
    ("settings", "wrong"),
    [
        pytest.param(SHARES, list(WRONG.values())[:4], id="shares: pages and parts"),
        pytest.param(SHARES, list(WRONG.values())[4:], id="shares: whole, and wrong"),
        pytest.param(HARDENED | {"rounds": 1}, list(WRONG.values()), id="hardened"),
    ],
)
def test_a_wrong_reply_to_each_step_costs_a_retry_and_no_round(
    tmp_path: Path, settings: dict[str, Any], wrong: list[Wrong]
) -> None:
    desk = Desk.funded(tmp_path, 4, **settings)
    events: list[tuple[str, Any]] = []
    desk.options.events = lambda event, **fields: events.append((event, fields.get("error")))
    proxy = BadProxy(desk, wrong)
    desk.sp = desk.new_sp()
    desk.upload()
    refusals = 0
    for _ in range(100):
        before = set(kept(desk))
        try:
            desk.run()
        except ReplyUnreadable:
            refusals += 1
            assert set(kept(desk)) >= before
            assert not {file.read_bytes() for file in kept(desk)} & {PAGE, b""}
        else:
            break
    assert desk.states()[0] == "rewarded"
    assert refusals == len(proxy.refused) > 3
    assert [event for event, _ in events].count("reply refused") == refusals


@pytest.mark.parametrize(
    "settings",
    [
        {"profile": "paper", "key_bits": 448, "lanes": None},
        SMALL,
        {"total": "hidden", "key_bits": 1024},
    ],
    ids=["paper", "hardened", "hidden total"],
)
def test_every_honest_reply_of_a_profile_has_its_form(settings: dict[str, Any]) -> None:
    """Whole rounds; and none of another request's kind has it."""
    sides = deal(3, 2, **settings)
    sides.sp.add_all({who: sides.upload([0.1, 0.2], 5, who) for who in sides.people})
    checked, pairs = 0, list[tuple[bytes, bytes]]()

    def answer(request: bytes) -> bytes:
        reply = sides.csp.answer(request)
        sides.sp.reply_form(request).check(reply)
        pairs.append((request, reply))
        return reply

    if settings.get("lanes", 1) != 0 and "total" not in settings:
        converse(sides.sp.reward(1_000_000), answer)
    converse(sides.sp.publish(final=False), answer)
    for request, reply in pairs:
        for _, other in pairs:
            if Message.kind_of(other) != Message.kind_of(reply):
                checked += 1
                with pytest.raises(FormatError):
                    sides.sp.reply_form(request).check(other)
    assert checked
