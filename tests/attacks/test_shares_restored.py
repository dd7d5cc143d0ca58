"""An SP that was restored from a backup, and a CSP that deviates: what KGC dealt for a round must mask one set of numbers only.

Masks of the profile `shares` are dealt by round. An SP that has forgotten a round would mask other lanes with the same ones,
and the difference of the two messages is a linear function of every upload.
"""

import shutil
from pathlib import Path

import numpy as np
import pytest

from crowdfl.crypto.shares.ring import Ring
from crowdfl.crypto.shares.sketch import Sketch
from crowdfl.protocols.messages import Limits
from crowdfl.protocols.shares.circuits.lanes import coins
from crowdfl.protocols.shares.round.manifest import ManifestReply, RoundManifest
from crowdfl.protocols.shares.round.transcript import StepRequest
from crowdfl.protocols.shares.round.upload import expanded_update, open_seed
from crowdfl.protocols.shares.shape import SharesShape
from crowdfl.roles.restored import mark_restored_sp
from tests.hosts import Desk, FileDisk

SHARES = {"profile": "shares", "lanes": 128, "max_norm": 3.0, "key_bits": 2048, "rounds": 3, "sigma": 40}
_ANY = Limits.plain(1 << 24)


class Wire:
    """What SP asks and what CSP answers, in order."""

    def __init__(self, desk: Desk) -> None:
        self.said: list[tuple[StepRequest, bytes]] = []
        self._desk = desk
        self.listen()

    def listen(self) -> None:
        answer = self._desk.csp.answer

        def noted(task: str, request: bytes) -> bytes:
            reply = answer(task, request)
            self.said.append((StepRequest.from_bytes(request, _ANY), reply))
            return reply

        self._desk.csp.answer = noted  # type: ignore[method-assign]

    def of(self, number: int, step: int) -> list[tuple[StepRequest, bytes]]:
        return [
            (request, reply) for request, reply in self.said if (request.round_number, request.step) == (number, step)
        ]


class Copies:
    """Folders of roles as they are now. SP's comes back as `crowdfl restore` does it, CSP's as CSP likes."""

    def __init__(self, desk: Desk) -> None:
        self._desk, self._folder = desk, desk.folder.parent / "copies"
        for role in ("sp", "csp"):
            shutil.copytree(desk.folder / role, self._folder / role)

    def restore(self) -> None:
        desk = self._desk
        assert isinstance(desk.disk, FileDisk)
        desk.disk.close()
        for role in ("sp", "csp"):
            shutil.rmtree(desk.folder / role)
            shutil.copytree(self._folder / role, desk.folder / role)
        mark_restored_sp(desk.disk.store("sp"), desk.clock.now())
        desk.restart()


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    desk = Desk(tmp_path / "desk", **SHARES)
    desk.invite(4)
    desk.requester.fund(desk.task, 3 * 36_000_000, "all")
    desk.run()
    return desk


def play(desk: Desk) -> None:
    """Everyone does what is due, and SP its part."""
    for place, person in enumerate(desk.crowd):

        def train(arrays, _settings, number, place=place):
            rng = np.random.default_rng([number, place])
            return [array + 0.1 + rng.normal(size=array.shape) * 0.02 for array in arrays], 5

        person.step(train)
    desk.run()


def lanes_sent(shape: SharesShape, wire: Wire, at: int) -> np.ndarray:
    """SP's covered shares of everyone's lanes, in a round's second request."""
    payload, people = wire.of(1, 2)[at][0].payload, len(manifest_of(wire, at).names)
    ring, lanes = shape.ring, shape.widths.lanes
    return ring.decode(payload[: people * lanes * ring.bytes]).reshape(people, lanes)


def manifest_of(wire: Wire, at: int) -> RoundManifest:
    return RoundManifest.from_bytes(wire.of(1, 1)[at][0].payload, _ANY)


def sketch_matrix(shape: SharesShape, wire: Wire, at: int) -> np.ndarray:
    """[lanes, parameters], of the coins of one of the two runs."""
    nonce = ManifestReply.from_bytes(wire.of(1, 1)[at][1], _ANY).nonce
    widths = shape.widths
    sketch = Sketch(coins(manifest_of(wire, at).digest, nonce), widths.parameters, widths.rows, widths.buckets)
    unit = np.eye(widths.parameters, dtype=np.uint64)
    return Ring(64).signed(sketch.lanes(unit)).T


def updates_read(desk: Desk, wire: Wire) -> dict[str, np.ndarray]:
    """What CSP computes of everyone's update: it takes its own shares off the difference, and solves."""
    shape = SharesShape(desk.sp.definition(desk.task).spec)
    manifest, ring = manifest_of(wire, 0), shape.ring
    sealing = desk.csp._side(desk.csp.store.task(desk.task), 0)._keys.sealing
    first, second = (sketch_matrix(shape, wire, at) for at in (0, 1))
    seen = ring.reduced(lanes_sent(shape, wire, 0) - lanes_sent(shape, wire, 1))
    found = {}
    for slot, who in enumerate(manifest.names):
        seed = open_seed(sealing, manifest.place, who, manifest.digests[slot], manifest.sealed[slot])
        own = ring.decode(expanded_update(seed, manifest.place, who, shape.share_bytes))
        together = ring.signed(ring.reduced(seen[slot] + ((first - second).astype(np.uint64) @ own)))
        found[who] = np.linalg.lstsq((first - second).astype(float), together.astype(float), rcond=None)[0]
    return found


def test_an_sp_that_forgot_a_round_masks_nothing_with_what_was_dealt_for_it(desk: Desk) -> None:
    """CSP has kept a copy of its own store, and answers as if it had heard of nothing."""
    wire, copies = Wire(desk), Copies(desk)
    play(desk)
    assert len(wire.of(1, 2)) == 1
    copies.restore()
    wire.listen()
    for _ in range(3):
        play(desk)
    assert len(wire.of(1, 2)) == 1, f"CSP reads {updates_read(desk, wire)}"


def test_a_task_with_dealt_masks_ends_with_the_restore_and_its_money_returns(desk: Desk) -> None:
    copies = Copies(desk)
    copies.restore()
    desk.run()
    status = desk.sp.status(desk.task)
    assert status["state"] == "cancelled"
    assert [entry["state"] for entry in status["rounds"]] == ["aborted"]
    assert desk.sp.ledger(desk.task).balance("requester") == 0


def test_what_was_earned_before_the_backup_stays_claimable(desk: Desk) -> None:
    play(desk)
    for person in desk.crowd:
        person.open_reward(1)
    Copies(desk).restore()
    play(desk)
    assert [entry["state"] for entry in desk.sp.status(desk.task)["rounds"]] == ["rewarded", "aborted"]
    assert 36_000_000 - 8 <= sum(person.claim() for person in desk.crowd) <= 36_000_000
