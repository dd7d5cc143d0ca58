"""What SP showed CSP and what CSP answered, over all their lives: nothing that hides a content ever meets another one."""

import contextlib
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from crowdfl.errors import FormatError
from crowdfl.protocols.messages import Limits, Message
from crowdfl.protocols.shares.round.average import RoundRecord, SumReply
from crowdfl.protocols.shares.round.manifest import StepReply, StepRequest
from crowdfl.simulation.host import Call, Deliver

__all__ = ["Passed"]

Step = tuple[str, int, int]  # task, round and step: what was dealt for it, and the masks, serve it alone


def _sets() -> dict[Any, set[bytes]]:
    return defaultdict(set)


@dataclass
class Passed:
    """Of every process of a CSP that serves the same tasks."""

    requests: dict[Step, set[bytes]] = field(default_factory=_sets)
    replies: dict[Step, set[bytes]] = field(default_factory=_sets)
    answers: dict[tuple[str, bytes], set[bytes]] = field(default_factory=_sets)  # of requests of every kind
    sums: dict[bytes, set[bytes]] = field(default_factory=_sets)  # that were opened of a base

    def watch(self, call: Call, deliver: Deliver) -> Any:
        """As a wire does."""
        if (call.receiver, call.name) != ("csp", "answer"):
            return deliver()
        task, request = call.arguments[:2]
        step = self.step_of(task, request)
        if step is not None:
            self.requests[step].add(request)
        reply = bytes(deliver())
        self.answers[task, request].add(reply)
        if step is not None:
            self.note(step, reply)
        return reply

    def check(self) -> None:
        """At any moment."""
        assert all(len(found) == 1 for found in self.requests.values()), (
            "what SP masked a step with served two contents"
        )
        assert all(len(found) == 1 for found in self.replies.values()), "what was dealt for a step served two contents"
        assert all(len(found) == 1 for found in self.answers.values()), "a request was answered in two ways"
        assert all(len(found) == 1 for found in self.sums.values()), "two sums of one base were opened"

    def step_of(self, task: str, request: bytes) -> Step | None:
        """None for a claim."""
        if Message.kind_of(request) != StepRequest.kind:
            return None
        message = StepRequest.from_bytes(request, Limits.plain(len(request)))
        return task, message.round_number, message.step

    def note(self, step: Step, reply: bytes) -> None:
        self.replies[step].add(reply)
        with contextlib.suppress(FormatError):  # most answers are parts of a computation, without a form of their own
            opened = SumReply.from_bytes(
                payload := StepReply.from_bytes(reply, _limits(reply)).payload, _limits(payload)
            )
            record = RoundRecord.from_bytes(opened.record, _limits(opened.record))
            self.sums[record.base].add(record.opened)


def _limits(data: bytes) -> Limits:
    return Limits.plain(len(data))
