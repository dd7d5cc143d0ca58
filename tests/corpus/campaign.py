"""The campaigns of the corpus: how they are begun, and how whichever version finishes them, by services that know another time.

Of version 1, `v1/` holds what `make.py` has left: the roles' folders, homes of a requester and of people, what a phone stored.

- `phone`: shares, fixed pay, two rounds. Ann and Ben take part by programs, somebody by a phone, which was closed in round 1.
- `stuck`: shares, pay by distance. CSP was away in the middle of the steps of round 1.
- `keyed`: hardened, by three people. Two have sent their updates of round 1.
- `open`: shares. Its invitations are given and nobody has joined.
"""

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from crowdfl.errors import NotReady
from crowdfl.learning.recipe import Recipe
from crowdfl.learning.training import LocalTrainer
from crowdfl.roles.participant.participant import Participant
from crowdfl.roles.requester import Requester, own_key
from crowdfl.services.client.peers import KgcClient, SpClient
from crowdfl.services.client.transport import Service, SystemClock
from crowdfl.settings import TaskSettings
from crowdfl.storage.blobs import FileBlobs
from tests.hosts import HARDENED, INITIAL_MODEL, SMALL_TASK, small_definition, unchanged
from tests.http.processes import Loopback, serving, wait_for

ABOUT = "about.json"
OF_ROLES = ("state.db", "signing.key", "push.key", "blobs", "keys", "guard")  # what `serving` does not make afresh
LABELS = ("walking", "sitting", "climbing stairs")
TRAINING: dict[str, Any] = {
    "learner": "softmax",
    "labels": list(LABELS),
    "channels": 6,
    "window_samples": 50,
    "epochs": 5,
    "rate": 0.1,
    "seed": 7,
}
LONG = 3600.0  # a round
PHONE = {
    "profile": "shares",
    "decimals": 5,
    "clip": 2.0,
    "max_norm": 5.0,
    "max_samples": 200,
    "lanes": 256,
    "min_participants": 3,
    "max_participants": 3,
    "pay": "fixed",
    "each": "2.00",
    "bonus": "1.00",
    "rounds": 2,
    "window": LONG,
}
SMALL = SMALL_TASK | {"window": LONG, "min_participants": 3, "max_participants": 3}
TASKS: dict[str, dict[str, Any]] = {"phone": PHONE, "stuck": SMALL, "keyed": SMALL | HARDENED, "open": SMALL}
OF_PROGRAMS = {
    "phone": ("ann", "ben"),
    "stuck": ("cy", "dot", "eve"),
    "keyed": ("fay", "gus", "hal"),
    "open": ("ida", "jon", "kit"),
}
CLAIM_WINDOW = 10 * 86400.0


class OffsetClock:
    """All that runs in this process lives at another time."""

    offset = 0.0

    def now(self) -> float:
        return time.time() + self.offset


@contextmanager
def at(clock: OffsetClock) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SystemClock, "now", lambda _: clock.now())
        yield


@dataclass
class World:
    """The services over a folder, and everybody in it."""

    folder: Path
    platform: Loopback
    clock: OffsetClock
    tasks: dict[str, str] = field(default_factory=dict)

    @property
    def requester(self) -> Requester:
        blobs = FileBlobs(self.folder / "requester")
        tokens, key = self.platform.tokens, own_key(blobs)
        kgc, sp = (
            self._service(self.platform._link(name).as_requester(tokens[f"{name} for requester"], key))
            for name in ("kgc", "sp")
        )
        clients = KgcClient(kgc), SpClient(sp)
        return Requester(blobs, self.clock, *clients, self.platform.kgc_key, self.platform.tools)

    def _service(self, service: Service) -> Service:
        """Which signs by this time."""
        return replace(self.platform._kept(service), now=self.clock.now)

    def person(self, task: str, name: str) -> Participant:
        """Whose home is on disk."""
        kgc, sp = (self._service(self.platform._link(one).open()) for one in ("kgc", "sp"))
        home, clients = FileBlobs(self.folder / "people" / name), (KgcClient(kgc), SpClient(sp))
        own = {"sp_key": clients[1].key(), "least_participants": 1, "now": self.clock.now}
        return Participant(self.tasks[task], home, *clients, self.platform.kgc_key, self.platform.tools, **own)

    def people(self, task: str) -> list[Participant]:
        return [self.person(task, name) for name in OF_PROGRAMS[task]]

    def train(self, task: str, name: str) -> Any:
        if task != "phone":
            return unchanged
        home = self.folder / "data" / name
        home.mkdir(parents=True, exist_ok=True)
        (home / "recordings.csv").write_text(csv(len(name) + ord(name[0])))
        return LocalTrainer(f"csv:{home}", TRAINING).train

    def take_part(self, task: str, name: str, number: int) -> None:
        person, train = self.person(task, name), self.train(task, name)

        def look() -> None:
            person.step(train)
            if not person.blobs.has(f"rounds/{number}/receipt"):
                raise NotReady("not yet")

        wait_for(look)

    def state(self, task: str) -> str:
        return str(self.requester.sp.status(self.tasks[task])["state"])


@contextmanager
def world(folder: Path, clock: OffsetClock, **of_sp: Any) -> Iterator[World]:
    with ExitStack() as stack:
        stack.enter_context(at(clock))
        platform = stack.enter_context(serving(folder, max_clock_jump=1e9, **of_sp))
        about = folder / ABOUT
        yield World(folder, platform, clock, json.loads(about.read_text())["tasks"] if about.exists() else {})


def post(requester: Requester, name: str, platform: Loopback) -> str:
    """A funded task."""
    asked = TaskSettings.of(**TASKS[name])
    definition = replace(small_definition(asked, claim_window=CLAIM_WINDOW), purpose=f"Tell what people do: {name}")
    weights: Any = INITIAL_MODEL
    if name == "phone":
        learner = Recipe.of(TRAINING).make_learner()
        definition, weights = replace(definition, shape=learner.shape, training=TRAINING), learner.weights()
    task = requester.create(definition, weights)
    cost = definition.plan.whole_cost(asked)
    requester.fund(task, cost, "all")
    platform.confirm(task, "all", cost)
    return task


def csv(person: int) -> str:
    """What a sensor app would export: three activities, one after the other."""
    lines = ["time,ax,ay,az,gx,gy,gz,label"]
    for place, label in enumerate(LABELS):
        for step in range(14 * 50):
            moved = [
                0.3 * place * ((step * (3 + place) + person) % 11 - 5) / 5,
                0.1 * (step % (5 + place)),
                1.0 - 0.1 * place,
            ]
            turned = [0.5 * place * ((step + person) % 7 - 3) / 3, 0.0, 0.3 * ((step * 2) % 9 - 4) / 4]
            seconds = (place * 24 * 50 + step) / 50
            lines.append(",".join([f"{seconds:.2f}", *(f"{value:.5f}" for value in moved + turned), label]))
    return "\n".join(lines) + "\n"
