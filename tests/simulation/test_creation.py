"""A task comes into being whole, whichever server dies while it does."""

from pathlib import Path

import pytest

from crowdfl.roles.kgc import Kgc
from crowdfl.storage.blobs import FileBlobs
from tests.simulation.faults import Crash, Fragile, Life
from tests.simulation.world import World, closing


@pytest.mark.second
def test_a_task_is_created_whatever_step_sp_or_csp_dies_at(tmp_path: Path):
    """The requester tries again until it is told that the task is there; then a round runs with both."""
    for server in ("SP", "CSP"):
        for step in range(1, 9):
            with closing(_Unmade(tmp_path / f"{server}{step}", server, step)) as world:
                world.tick()
                assert world.states() == ["open"]
                for person in world.people:
                    world.upload(person)
                for _ in range(3):
                    world.tick()
                assert world.states() == ["rewarded"]


def test_keys_are_dealt_whole_whatever_step_kgc_dies_at(tmp_path: Path):
    """Whoever fetches a bundle after a retry gets one of the same dealing as everyone else's."""
    for step in range(1, 40):
        with closing(World(tmp_path / str(step), profile="clear", deposit=0)) as world:
            text = world.kgc.store.task(world.task).definition
            life, bundles, store = Life(step), FileBlobs(tmp_path / f"{step}/again"), world.disk.store(f"again{step}")
            try:
                _kgc(world, Fragile(store, life), Fragile(bundles, life)).create_task(text)
                died = False
            except Crash:
                died = True
            created = _kgc(world, store, bundles).create_task(text)
            assert created.bundle == b"requester"
            assert [bundles.get(f"{world.task}.{role}") for role in ("sp", "csp")] == [b"sp", b"csp"]
        if not died:
            return
    pytest.fail("KGC never lived to the end")


def _kgc(world: World, store: object, bundles: object) -> Kgc:
    return Kgc(store, bundles, world.clock, world.kgc.signing, True)  # type: ignore[arg-type]


class _Unmade(World):
    """A world in which a server dies while the task is created."""

    def __init__(self, folder: Path, server: str, step: int) -> None:
        self._fatal = (server, step)
        super().__init__(folder, profile="clear")

    def _create(self) -> None:
        server, step = self._fatal
        if server == "SP":
            self.sp_lives[0].left = step
        else:
            self.csp_life.left = step
        for _ in range(3):
            try:
                super()._create()
            except Crash:
                self.sps[0] = self._new_sp(0)
            except ConnectionError:
                continue
            else:
                return
        super()._create()
