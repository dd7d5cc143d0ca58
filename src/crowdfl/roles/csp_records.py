"""Where CSP keeps what its protocols decide by: records in its store, long values and answers in files."""

from dataclasses import dataclass

from crowdfl.protocols.records import Place, Standing
from crowdfl.roles.ports import Blobs, CspStore

STEPS = "answers"  # the folder of a task with the replies of its steps
OPENED = "opened"  # and with those of claims for which something was decrypted


def memory_folder(task: str, number: int) -> str:
    """Of a round: the long values that its records name."""
    return f"{task}/rounds/{number}/heard"


@dataclass(frozen=True)
class StoredRecords:
    """The records of one task, as they are in the store."""

    store: CspStore
    blobs: Blobs
    task: str

    def standing(self, place: Place) -> Standing:
        return self.store.record(self.task, place)

    def file(self, number: int, name: str) -> bytes:
        return self.blobs.get(f"{memory_folder(self.task, number)}/{name}")
