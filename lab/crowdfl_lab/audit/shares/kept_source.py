"""A server that lets KGC keep what it dealt. With KGC's disk it would read every upload: the other server must not compute."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from crowdfl.errors import NotReady
from crowdfl.learning.models.learner import Update
from crowdfl.roles.csp import Csp
from crowdfl.roles.kgc import Kgc
from crowdfl.simulation.local_host import LocalFederation
from crowdfl_lab.audit.finding import SHARES, Attack, Finding, Measure, difference
from crowdfl_lab.audit.shares.deviating_round import switched, weakened

_KEPT = Measure(difference, "whether a round is computed while KGC has the seeds of both servers; blind: no")


def attack_kept_source() -> Iterator[Finding]:
    """SP says to KGC that it has its files never, and to itself that KGC has nothing left."""
    title = "the seeds of both servers, on KGC's disk after a round, by SP that never acknowledges its files"
    attack = Attack("kept source", "new", title, ("SP", "KGC"), _KEPT)
    acknowledge, fetch = Kgc.acknowledge, Csp._fetch_dealt

    def silent(kgc: Kgc, task: str, role: str) -> bool:
        return role == "sp" or acknowledge(kgc, task, role)

    for subject in ("shares, a CSP that does not ask KGC", SHARES):
        unasked = (Csp, "_become_sole_holder", lambda csp, task: fetch(csp, task) is None)
        with switched(Kgc, "acknowledge", silent), weakened(subject, unasked):
            kept, note = _played()
        yield attack.score(subject, float(kept), 0.0, 1.0, "the source" if kept else "nothing", note)


def _played() -> tuple[bool, str]:
    """Whether KGC has the source after a round, and what became of that."""
    settings: dict[str, Any] = {"min_participants": 3, "max_participants": 4, "max_samples": 20, "max_norm": 2.0}
    federation = LocalFederation(profile="shares", lanes=256, rounds=1, **settings)
    try:
        federation.round({who: Update([np.full(4, 0.1)], 5) for who in ("a", "b", "c", "d")})
    except NotReady as refusal:
        return False, f"no step before that: {type(refusal).__name__}"
    return federation.host.disk.blobs("kgc/keys").has(f"{federation.task}.source"), "the round is computed"
