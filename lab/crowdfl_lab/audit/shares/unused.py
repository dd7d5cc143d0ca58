"""People who take the pay for uploads that are not used, and have made none, or were paid for the round before."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from crowdfl.crypto.compute import Threads
from crowdfl.documents.signed import Definition
from crowdfl.errors import CrowdFLError
from crowdfl.learning.models.shape import ModelShape
from crowdfl.protocols.profile import Tools
from crowdfl.protocols.shares.round.sp import SharesSp
from crowdfl.roles.sp.uploads import PendingUpload, Uploads
from crowdfl.settings import PlanSettings, TaskSettings
from crowdfl.simulation.host import FOREVER, Host
from crowdfl_lab.audit.finding import SHARES, Attack, Finding, Measure, difference
from crowdfl_lab.audit.shares.deviating_round import weakened

_GOAL, _EACH = 3, "0.25"
_PAID = Measure[float](difference, "millionths below all that the attacker is after; blind: it is paid nothing")
_LAZY = Attack(
    "pay for one byte", "new", "pay for an unused upload, by somebody who has made none", ("participant",), _PAID
)
_TWICE = Attack(
    "paid with two phones", "new", "pay for an unused upload, by a person who was counted", ("participant",), _PAID
)


def attack_unused() -> Iterator[Finding]:
    """After the round has closed: one byte; and a good upload of the phone that replaces one which was counted."""
    unchecked = (SharesSp, "refusals", lambda _side, uploads, **_heads: [None for _ in uploads])
    for subject in ("shares, an SP that looks at no byte", SHARES):
        with weakened(subject, unchecked):
            yield _scored(_LAZY, subject, lambda host, task: _sent(host, task, "p3", b"x"))
    apart = (Uploads, "_sent_before", lambda *_: None)
    for subject in ("shares, an SP that takes each phone for a person", SHARES):
        with weakened(subject, apart):
            yield _scored(_TWICE, subject, _replaced)


def _scored(attack: Attack[float], subject: str, go: Callable[[Host, str], int]) -> Finding:
    host, task = _computed()
    try:
        paid, note = go(host, task), "it is owed"
    except CrowdFLError as refusal:
        paid, note = 0, f"refused: {type(refusal).__name__}"
    most = host.sp.core.definition(task).plan.each_unused
    return attack.score(subject, paid, 0, most, f"{paid} of {most} millionths", note)


def _computed() -> tuple[Host, str]:
    """A task of two rounds, the first of which has its goal, and is computed."""
    host = Host(Tools(Threads(1)))
    settings = TaskSettings.of(
        profile=SHARES, weighting="equal", lanes=128, max_norm=3.0, rounds=2, budget="3.00", pay="equal"
    )
    plan = PlanSettings(closes="deadline", goal=_GOAL, unused_pay=_EACH)
    shape, initial = ModelShape.of({"w": np.zeros(8)}), [np.zeros(8)]
    task = host.create(Definition("t", "t", "t", shape, settings, 10**6, {}, plan=plan), initial)
    people = [host.join(task, f"p{place}") for place in range(_GOAL + 1)]
    host.requester.fund(task, 2 * plan.round_cost(settings), "all")
    host.confirm_deposits(task)
    host.run()
    for person in people[:_GOAL]:
        person.step(lambda base, *_: (base, 1))
    host.run()
    return host, task


def _sent(host: Host, task: str, name: str, upload: bytes) -> int:
    who = host.people[name].keys.who
    (outcome,) = host.sp.uploads.receive(task, 1, [PendingUpload.of(who, upload)])
    if isinstance(outcome, CrowdFLError):
        raise outcome
    return host.sp.core.ledger(task).unused(who).get(1, 0)


def _replaced(host: Host, task: str) -> int:
    (invitation,) = host.requester.invite(task, 1, FOREVER, replaces=host.people["p0"].keys.who)
    phone = host.people["new"] = host.new_participant(task, "new")
    phone.join(invitation)
    made: Any = phone.side.encrypt_update(np.zeros(8), 1, 1)
    return _sent(host, task, "new", made)
