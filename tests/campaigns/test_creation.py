"""A task comes into being whole, whichever server dies while it does."""

from pathlib import Path

import pytest

from crowdfl.documents.signed import Appointment
from crowdfl.errors import ServiceUnavailable
from crowdfl.protocols.messages import Limits
from crowdfl.protocols.shares.dealing.keys import SharesCspBundle, SharesReaderBundle, SharesSpBundle
from crowdfl.roles.kgc import Kgc
from crowdfl.simulation.faults import Crash, LivedBlobs
from crowdfl.storage.blobs import FileBlobs
from tests.campaigns.faults import dying
from tests.campaigns.world import World, closing

BUNDLES = {"sp": SharesSpBundle, "csp": SharesCspBundle}


@pytest.mark.second
@pytest.mark.parametrize("server", ["SP", "CSP"])
def test_a_task_is_created_whatever_step_sp_or_csp_dies_at(server: str, tmp_path: Path):
    """The requester tries again until it is told that the task is there; then a round runs with both."""
    for step in range(1, 100):
        with closing(_Unmade(tmp_path / str(step), server, step)) as world:
            world.tick()
            assert world.states() == ["open"]
            for person in world.people:
                world.upload(person)
            world.run()
            assert world.states() == ["rewarded"]
            world.check()
        if not world.died:
            assert step > 8
            return
    pytest.fail(f"{server} never lived to the end")


def test_keys_are_dealt_whole_whatever_step_kgc_dies_at(tmp_path: Path):
    """Whoever fetches a bundle after a retry gets one of the same dealing as everyone else's."""
    for step in range(1, 40):
        with closing(World(tmp_path / str(step), deposit=0)) as world:
            text = world.kgc.store.task(world.task).definition
            life, bundles = dying(step), FileBlobs(tmp_path / f"{step}/again")
            store, mortal = (world.disk.store(f"again{step}") for _ in range(2))
            mortal.at_commit = life.commit
            try:
                _kgc(world, mortal, LivedBlobs(bundles, life, "keys")).create_task(text)
                died = False
            except Crash:
                died = True
            created = _kgc(world, store, bundles).create_task(text)
            dealing = {kind: bundles.get(f"{world.task}.{role}") for role, kind in BUNDLES.items()}
            dealing[SharesReaderBundle] = created.bundle
            (key,) = {kind.from_bytes(bundle, Limits.plain()).fingerprint.hex() for kind, bundle in dealing.items()}
            assert Appointment.open(created.appointment, world.kgc.signing.public).fingerprint == key
        if not died:
            return
    pytest.fail("KGC never lived to the end")


def _kgc(world: World, store: object, bundles: object) -> Kgc:
    return Kgc(store, bundles, world.clock, world.kgc.signing, True)  # type: ignore[arg-type]


class _Unmade(World):
    """A world in which a server dies while the task is created."""

    died = False

    def __init__(self, folder: Path, server: str, step: int) -> None:
        self._fatal = (server, step)
        super().__init__(folder, 3, rounds=1)

    def _create(self) -> None:
        server, step = self._fatal
        if server == "SP":
            self.sp_lives[0].left = step
        else:
            self.csp_life.left = step
        try:
            super()._create()
        except Crash:
            self.host.start("sp")
            self.died = True
        except ServiceUnavailable:
            self.died = True
        else:
            self.sp_lives[0].left = self.csp_life.left = None
            return
        super()._create()
