"""KGC, CSP and SP over TLS, SP with its pages, for phones in browsers beside Python participants; and made-up recordings."""

import contextlib
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar
from unittest import mock

from fastapi import FastAPI

from crowdfl.documents.links import invitation_link
from crowdfl.errors import NotReady
from crowdfl.learning.recipe import Recipe
from crowdfl.roles.requester import Requester
from crowdfl.services.client.peers import SpClient
from crowdfl.settings import ParticipantSettings, TaskSettings, origin_of
from crowdfl.web.console_app import add_pages
from tests import subprocesses
from tests.hosts import small_definition
from tests.http import processes as loopback

LABELS = ("walking", "sitting", "climbing stairs")
TRAINING: dict[str, Any] = {
    "learner": "softmax",
    "labels": list(LABELS),
    "channels": 6,
    "window": 50,
    "epochs": 5,
    "rate": 0.1,
    "seed": 7,
}
SETTINGS: dict[str, Any] = {
    "profile": "shares",
    "decimals": 5,
    "clip": 2.0,
    "max_samples": 200,
    "lanes": 256,
    "pay": "distance",
    "budget": "36.00",
    "window": 3600.0,
}
BUDGET = 36_000_000  # millionths
_HERTZ, _SECONDS = 50, 14
_Found = TypeVar("_Found")


@contextlib.contextmanager
def phone_platform(folder: Path) -> Iterator[loopback.Loopback]:
    """As `crowdfl init` sets them up: SP serves the page, KGC lets it call."""
    apps: dict[str, FastAPI] = {}

    def watched(name: str) -> Callable[..., FastAPI]:
        open_one = getattr(loopback, f"open_{name}")

        def open_app(settings: Any, *rest: Any) -> FastAPI:
            apps[name] = open_one(settings, *rest)
            if name == "sp":
                add_pages(apps[name], settings)
            return apps[name]

        return open_app

    opened = {f"open_{name}": watched(name) for name in ("kgc", "sp")}
    with mock.patch.multiple(loopback, **opened), loopback.serving(folder) as platform:
        apps["kgc"].state.web_origins.add(origin_of(platform.urls["sp"]))
        yield platform


def post(
    platform: loopback.Loopback, requester: Requester, training: dict[str, Any] = TRAINING, **settings: Any
) -> str:
    """A funded task; as usual with a model of 54 inputs and three outputs."""
    learner = Recipe.of(training).make_learner()
    asked = TaskSettings.of(**(SETTINGS | settings))
    definition = replace(
        small_definition(asked, claim_window=10_000.0),
        purpose="Tell walking, sitting and stairs apart",
        shape=learner.shape,
        training=training,
    )
    task = requester.create(definition, learner.weights())
    requester.fund(task, asked.rounds * BUDGET, "all")
    platform.confirm(task, "all", asked.rounds * BUDGET)
    return task


def link(platform: loopback.Loopback, requester: Requester, task: str) -> str:
    """An invitation for one phone."""
    assert isinstance(requester.sp, SpClient)
    (invitation,) = requester.invite(task, 1, 3600.0)
    where = {"kgc": platform.urls["kgc"], "sp": platform.urls["sp"]}
    keys = {"kgc_key": platform.kgc_key, "sp_key": requester.sp.key()}
    contents = ParticipantSettings(task=task, invitation=invitation, **where, **keys, ca=None, insecure_test_key=False)
    return invitation_link(f"{platform.urls['sp']}/join/", contents)


def wait_for(read: Callable[[], _Found]) -> _Found:
    """What is not there yet, on a machine that may be busy."""
    until = time.monotonic() + subprocesses.PATIENCE
    while True:
        try:
            return read()
        except NotReady:
            assert time.monotonic() < until, "it never came"
            time.sleep(0.05)


def csv(person: int) -> str:
    """What a sensor app would export: three activities, one after the other."""
    lines = ["time,ax,ay,az,gx,gy,gz,label"]
    for place, label in enumerate(LABELS):
        for step in range(_SECONDS * _HERTZ):
            lines.append(_row(person, place, step, label))
    return "\n".join(lines) + "\n"


def _row(person: int, place: int, step: int, label: str) -> str:
    turn = 2 * math.pi * (place + 0.5 + 0.05 * person) * step / _HERTZ
    moved = [0.2 * place * math.sin(turn), 0.1 * math.cos(turn), 1.0 - 0.1 * place]
    turned = [0.5 * place * math.cos(turn), 0.0, 0.3 * math.sin(2 * turn)]
    time = (place * (_SECONDS + 10) * _HERTZ + step) / _HERTZ
    return ",".join([f"{time:.2f}", *(f"{value:.5f}" for value in moved + turned), label])
