"""A server's disk, as a backup or a snapshot has it."""

from typing import Any, cast

from crowdfl.simulation.disks import Disk, MemoryDisk
from crowdfl.storage.memory_blobs import MemoryBlobs


class CopiedDisk(MemoryDisk):
    """A server's disk as it is now; its guard too, or the very one that it goes on with."""

    def __init__(self, disk: Disk, role: str, *, with_guard: bool) -> None:
        super().__init__()
        with disk.store(role).engine.connect() as live, self.store(role).engine.connect() as copy:
            source, target = (cast(Any, found.connection.driver_connection) for found in (live, copy))
            source.backup(target)
        for name in ("blobs", "keys", "guard"):
            own = disk.blobs(f"{role}/{name}")
            if name == "guard" and not with_guard:
                self._blobs[f"{role}/{name}"] = cast(MemoryBlobs, own)
                continue
            for blob in own.listing():
                self.blobs(f"{role}/{name}").put(blob, own.get(blob))
