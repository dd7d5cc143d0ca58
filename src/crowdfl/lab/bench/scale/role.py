"""One role in a process of its own, so that its memory is its own: `python -m crowdfl.lab.bench.scale.role`.

Frames of bytes on stdin and stdout, each after its length: first an order (JSON; the role's bundle travels in it, through
the pipe alone), then the protocol's messages, and last what was measured (JSON).
"""

import json
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import IO, Any

from crowdfl.crypto.compute import Threads
from crowdfl.crypto.randomizers import FreshRandomizers
from crowdfl.lab.bench.crypto.memory import current_bytes, peak_bytes
from crowdfl.lab.bench.protocols.setting import made_up_weights
from crowdfl.lab.bench.scale.sample import Sampled
from crowdfl.protocols.exchange import Exchange, Reply, Silent
from crowdfl.protocols.hardened.opening import OpenRequest
from crowdfl.protocols.messages import Message
from crowdfl.protocols.profile import CspProtocol, Identity, ParticipantKeys, SpProtocol, TaskSpec, Tools
from crowdfl.protocols.registry import PROFILES
from crowdfl.settings import MILLION, TaskSettings

__all__ = ["END", "UPLOAD", "main", "read_frame", "write_frame"]

UPLOAD = "0.upload"
END = b""
_LENGTH = 8
_SAMPLES = 1


def write_frame(stream: IO[bytes], frame: bytes) -> None:
    """One frame."""
    stream.write(len(frame).to_bytes(_LENGTH, "big") + frame)
    stream.flush()


def read_frame(stream: IO[bytes]) -> bytes:
    """The next one; nothing at the end."""
    return stream.read(int.from_bytes(stream.read(_LENGTH), "big"))


class _Role:
    """What every role starts from."""

    def __init__(self, order: dict[str, Any]) -> None:
        self.order, self.folder = order, Path(order["folder"])
        self.backend = Sampled(Threads(1), order["rows"])
        self.tools = Tools(self.backend, insecure_test_key=order["insecure_test_key"], observer=Silent())
        self.about = TaskSpec("scale", TaskSettings(**order["task"]), order["parameters"])
        self.profile = PROFILES["hardened"]
        self.bundle = bytes.fromhex(order.pop("bundle"))
        self.people = [Identity(who, bytes.fromhex(s), bytes.fromhex(r)) for who, s, r in order["people"]]
        self.seconds: dict[str, float] = {}
        self.sampled: list[str] = []
        self.baseline = 0

    def begin(self) -> None:
        """Everything is built: what memory grows by from here is the role's work."""
        self.baseline = current_bytes()

    def measured(self) -> dict[str, Any]:
        """Seconds, the sampled rows' rest included, and bytes."""
        return {"seconds": self.seconds, "sampled": self.sampled, "memory": peak_bytes() - self.baseline}

    def clock(self, name: str, action: Callable[[], object]) -> None:
        """Processor time of one piece of work, what sampling leaves out included: a busy machine does not show in it."""
        before, start = self.backend.missing, time.process_time()
        action()
        seconds, left_out = time.process_time() - start, self.backend.missing - before
        self.seconds[name] = self.seconds.get(name, 0.0) + seconds + left_out
        if left_out and name not in self.sampled:
            self.sampled.append(name)


def _participant(role: _Role) -> None:
    keys = ParticipantKeys.fresh("p")
    side = role.profile.participant(role.about, role.bundle, keys, role.tools)
    FreshRandomizers(side.party.public).prepare()
    role.begin()
    publication = role.folder / "publication"
    if publication.exists():
        role.clock("read", lambda: side.read(publication.read_bytes(), 1))
        return
    weights = made_up_weights(role.about.parameters, 2021)
    role.clock("encrypt", lambda: (role.folder / UPLOAD).write_bytes(side.encrypt_update(weights, _SAMPLES)))


def _sp(role: _Role, ask: Callable[[bytes], bytes]) -> None:
    sp: SpProtocol = role.profile.sp(role.about, role.bundle, role.tools)
    for identity in role.people:
        sp.enrol(identity)
    FreshRandomizers(sp.party.public).prepare()
    sp.read_again(lambda _: (role.folder / UPLOAD).read_bytes())
    role.begin()
    for i in range(role.order["crowd"]):
        who = role.people[i].who if role.people else f"p{i:07}"
        role.clock("add", partial(_add, sp, who, role.folder / UPLOAD))
    _steps(role, "publish", sp.publish(final=False), ask)
    role.clock("publish", sp.publication)
    if role.people:
        _steps(role, "reward", sp.reward(len(role.people) * MILLION), ask)


def _add(sp: SpProtocol, who: str, path: Path) -> None:
    sp.add(who, path.read_bytes())


def _steps(role: _Role, name: str, step: Exchange, ask: Callable[[bytes], bytes]) -> None:
    """Take a step of SP's to its end; waiting for CSP is on nobody's clock."""
    requests: list[bytes] = []

    def advance(reply: Reply | None) -> None:
        try:
            requests.append(next(step) if reply is None else step.send(reply))
        except StopIteration:
            requests.append(END)

    role.clock(name, partial(advance, None))
    while request := requests.pop():
        role.clock(name, partial(advance, partial(bytes, ask(request))))


def _csp(role: _Role, hear: Callable[[], bytes], say: Callable[[bytes], None]) -> None:
    csp: CspProtocol = role.profile.csp(role.about, role.bundle, role.tools)
    for identity in role.people:
        csp.enrol(identity)
    FreshRandomizers(csp.party.public).prepare()
    role.begin()
    replies: list[bytes] = []

    def answer(request: bytes) -> None:
        replies.append(csp.answer(request))

    while request := hear():
        stage = "publish" if Message.kind_of(request) == OpenRequest.kind else "reward"
        role.clock(stage, partial(answer, request))
        say(replies.pop())


def main() -> None:
    """Do as the first frame orders, then say what it took."""
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    role = _Role(json.loads(read_frame(source)))

    def ask(request: bytes) -> bytes:
        write_frame(sink, request)
        return read_frame(source)

    if role.order["role"] == "participant":
        _participant(role)
    elif role.order["role"] == "sp":
        _sp(role, ask)
        write_frame(sink, END)
    else:
        _csp(role, lambda: read_frame(source), lambda reply: write_frame(sink, reply))
    write_frame(sink, json.dumps(role.measured()).encode())


if __name__ == "__main__":
    main()
