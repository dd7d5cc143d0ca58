"""A disk that fills up, really: every role on a file system of a few megabytes. What is refused can be sent again later."""

import contextlib
import shutil
from dataclasses import replace

import pytest

from crowdfl.documents.invitations import Ticket
from crowdfl.documents.signed import Definition, participant_name
from crowdfl.errors import StorageFull
from crowdfl.protocols.profile import ParticipantKeys
from crowdfl.protocols.uploads import upload_digest
from crowdfl.roles.participant.enrolment import enrol
from crowdfl.services.client.peers import KgcClient
from crowdfl.services.http import bodies
from tests import subprocesses
from tests.http.test_uploads import place
from tests.http.world import World, definition_of

MEGABYTES = 24


class SmallDisk:
    """A file system that can be filled to the last byte."""

    def __init__(self, folder):
        self.folder, self.ballast = folder, folder / "ballast"

    def fill(self):
        with open(self.ballast, "wb", buffering=0) as file:
            for size in (1 << 16, 1 << 12, 1):
                with contextlib.suppress(OSError):
                    while True:
                        file.write(bytes(size))

    def free(self):
        self.ballast.unlink()

    def files(self):
        """Everything on it but databases and ballast: name and size."""
        found = [p for p in self.folder.rglob("*") if p.is_file() and "state.db" not in p.name and p != self.ballast]
        return sorted((str(path), path.stat().st_size) for path in found)


@pytest.fixture
def disk(tmp_path):
    """A disk of a few megabytes; mounting one takes root."""
    folder, mount, umount = tmp_path / "disk", shutil.which("mount"), shutil.which("umount")
    folder.mkdir()
    if mount is None or umount is None:
        pytest.skip("there is no mount command: no disk was filled")
    options = ["-t", "tmpfs", "-o", f"size={MEGABYTES}m,mode=700", "tmpfs", str(folder)]
    done = subprocesses.run([mount, *options], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"no disk was filled, for none can be mounted here: {done.stderr.strip()}")
    yield SmallDisk(folder)
    subprocesses.run([umount, "--lazy", str(folder)], check=True)


@pytest.fixture
def small(disk, portal):
    world = World(disk.folder, portal)
    yield world
    world.close()


def until_full(act):
    """A small write may still find a place that was taken before; the next ones do not."""
    for number in range(3000):
        try:
            act(number)
        except StorageFull:
            return number
    raise AssertionError("it was never full")


def test_a_full_disk_refuses_uploads_and_keeps_nothing_of_them(disk, small, monkeypatch):
    """507 for whole uploads and pieces, in memory or on their way to disk; the same requests are served when there is room."""
    task, people = small.open_round()
    uploads = [person.update() for person in people]
    disk.fill()
    before = disk.files(), small.sp.store.uploads(task, 1)
    with pytest.raises(StorageFull):
        people[0].sp.upload(task, 1, uploads[0])
    monkeypatch.setattr(bodies, "IN_MEMORY", 1)
    with pytest.raises(StorageFull):
        people[1].sp.upload_in_pieces(task, 1, uploads[1])
    offset = place(task, people[1].who, f"/offset?digest={upload_digest(uploads[1])}")
    assert people[1].sp.service.call("GET", offset).whole("offset") == 0
    left = [(name, size) for name, size in disk.files() if not name.endswith(".part")]
    assert (left, small.sp.store.uploads(task, 1)) == before
    assert all(size == 0 for name, size in disk.files() if name.endswith(".part"))
    assert small.http("sp").get("/healthz").status_code == 200
    assert small.http("sp").get("/readyz").status_code == 507
    disk.free()
    assert people[0].sp.upload(task, 1, uploads[0])
    assert people[1].sp.upload_in_pieces(task, 1, uploads[1])
    assert small.http("sp").get("/readyz").status_code == 200


def test_a_full_disk_stops_money_keys_and_enrolment_between_two_commits(disk, small):
    """507 from the database and from the key store; nothing is half done, and a retry of each is the same request."""
    task = small.post()
    sp, kgc = small.for_requester(), KgcClient(small.service("kgc", small.owner("kgc")))
    disk.fill()
    made = until_full(lambda number: sp.deposit(task, f"more {number}".replace(" ", "-"), 1))
    assert len(small.sp.store.deposits(task)) == 1 + made
    other = definition_of(small.requester.signing, window=55)
    files = disk.files()
    with pytest.raises(StorageFull):
        kgc.create_task(other.sign(small.requester.signing))
    assert disk.files() == files
    kgc_link, keys = KgcClient(small.service("kgc")), ParticipantKeys.fresh("")
    keys = replace(keys, who=participant_name(keys.signing.public))
    until, signer = small.clock.now() + 9, small.requester.signing
    invited = [Ticket.make(task, f"{number:032x}", 1, until, signer).text for number in range(3000)]
    posted = small.sp.core.definition(task)
    used = until_full(lambda number: enrol(kgc_link, posted, invited[number], keys, small.signing.public))
    disk.free()
    sp.deposit(task, f"more-{made}", 1)
    assert len(small.sp.store.deposits(task)) == 2 + made
    signed = other.sign(small.requester.signing)
    assert kgc.create_task(signed).task == Definition.open(signed).task
    assert enrol(kgc_link, posted, invited[used], keys, small.signing.public).certificate
    assert small.add_person(task)


class FullAtCsp:
    """CSP, on a disk that is full whenever it is asked something."""

    def __init__(self, csp, disk):
        self._csp, self._disk, self.refusals = csp, disk, 0

    def answer(self, task, request, _longest=0):
        """The disk fills up before, and has room again after."""
        self._disk.fill()
        try:
            return self._csp.answer(task, request)
        except StorageFull:
            self.refusals += 1
            raise
        finally:
            self._disk.free()

    def __getattr__(self, name):
        return getattr(self._csp, name)


def ticks(world, count=3):
    """SP's work, which a full disk may end for now."""
    for _ in range(count):
        with contextlib.suppress(StorageFull, OSError):
            world.sp.tick()


@pytest.mark.second
def test_a_round_waits_for_room_and_then_ends_as_it_would_have(disk, small):
    """CSP answers 507 and keeps no half answer; SP's own work fails too; with room, everyone is averaged and paid."""
    task, people = small.open_round()
    for person in people:
        person.sp.upload(task, 1, person.update())
    csp = small.sp.ports.csp
    small.sp.ports.csp = full = FullAtCsp(csp, disk)
    ticks(small)
    small.sp.ports.csp = csp
    assert full.refusals > 0
    assert sorted(small.csp.blobs.listing()) == []
    disk.fill()
    ticks(small)
    disk.free()
    small.run()
    assert [entry["state"] for entry in small.sp.tasks.status(task)["rounds"]] == ["rewarded"]
    for person in people:
        person.side.open_reward(person.sp.reward(task, 1), 1)
        assert person.sp.claim(task, person.side.claim()).amount > 0
