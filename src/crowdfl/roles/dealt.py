"""What KGC deals to SP and CSP for single rounds, as they keep it: fetched before the first round, burnt after its own.

A round has a file for each cohort that it may have; files are counted through.

A file is kept where key shares are, with its hash over task, role and round in front: one that was altered, or is of another
task, role or round, is not used. A round whose file is gone cannot be computed: it is given up and its money returned.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from crowdfl.documents.signed import Definition
from crowdfl.errors import DealtMaterialDamaged, NotReady
from crowdfl.protocols.capabilities import DealsFiles
from crowdfl.protocols.registry import profile_named
from crowdfl.roles.kept_file import KeptFile
from crowdfl.roles.ports import Blobs, KgcPeer

DEALT_FILES = "dealt files"
_HASH = 32
_PIECE = 1 << 20


def dealt_name(task: str, number: int) -> str:
    return f"{task}.dealt.{number}"


def is_dealt_file(name: str) -> bool:
    """Of a file in a folder of keys."""
    kind, _, number = name.partition(".")[2].partition(".")
    return kind == "dealt" and number.isdecimal()


def dealt_sizes(definition: Definition) -> Mapping[str, int]:
    """Bytes of each round, by role; empty if the profile deals nothing but bundles."""
    return {role: size * definition.settings.most_cohorts for role, size in file_sizes(definition).items()}


def file_sizes(definition: Definition) -> Mapping[str, int]:
    """The same of one file."""
    profile = profile_named(definition.settings.profile)
    if not isinstance(profile, DealsFiles):
        return {}
    return profile.dealt_bytes(definition.settings, definition.spec.parameters)


def files_of(definition: Definition, rounds: Iterable[int]) -> Iterator[int]:
    """The numbers of all files of some rounds."""
    cohorts = definition.settings.most_cohorts
    return (file for number in rounds for file in range((number - 1) * cohorts + 1, number * cohorts + 1))


def round_of(definition: Definition, file: int) -> int:
    """The round that a file was dealt for."""
    return (file - 1) // definition.settings.most_cohorts + 1


def dealt_words(definition: Definition) -> str:
    """What a task is dealt, for people: nothing is said of a task that is dealt no files."""
    sizes = dealt_sizes(definition)
    rounds = definition.settings.rounds
    each = (
        f"{role.upper()} {megabytes(size)} a round, {megabytes(size * rounds)} in all" for role, size in sizes.items()
    )
    return "; ".join(each)


def megabytes(size: int) -> str:
    """As people read it."""
    return f"{size / 1e6:,.1f} MB" if size >= 100_000 else f"{size / 1e3:,.1f} kB"


@dataclass(frozen=True)
class DealtFiles:
    """One server's."""

    bundles: Blobs
    role: str  # "sp" or "csp"

    def fetch(self, definition: Definition, kgc: KgcPeer) -> None:
        """Every round's that is not here yet, one in memory at a time; before KGC is told to destroy its source."""
        size = file_sizes(definition).get(self.role)
        if size is None:
            return
        for number in files_of(definition, range(1, definition.settings.rounds + 1)):
            name = dealt_name(definition.task, number)
            if not self.bundles.has(name):
                self.bundles.put(name, self._sealed(definition.task, number, kgc.dealt(definition.task, number), size))

    def load(self, definition: Definition, number: int) -> KeptFile:
        """Looked at from its beginning to its end, and not kept in memory."""
        try:
            file = self.bundles.open(dealt_name(definition.task, number))
        except NotReady:
            raise DealtMaterialDamaged(
                f"file {number} of what KGC dealt is not here any more: its round cannot be computed"
            ) from None
        kept = KeptFile(file, _HASH)
        hashed = self._hasher(definition.task, number)
        for start in range(0, len(kept), _PIECE):
            hashed.update(kept[start : start + _PIECE])
        if kept.head != hashed.digest():
            raise DealtMaterialDamaged(
                f"file {number} of what KGC dealt was altered, or is of another task or round: it cannot be computed with"
            )
        return kept

    def burn(self, definition: Definition, rounds: Iterable[int]) -> None:
        """Of rounds that are over for good. Idempotent."""
        for number in files_of(definition, rounds):
            self.bundles.delete(dealt_name(definition.task, number))

    def erase(self, task: str) -> None:
        """All of a task. Idempotent."""
        for name in self.bundles.listing():
            if is_dealt_file(name) and name.partition(".")[0] == task:
                self.bundles.delete(name)

    def _sealed(self, task: str, number: int, data: bytes | memoryview, size: int) -> bytes:
        if len(data) != size:
            raise DealtMaterialDamaged(
                f"KGC dealt {len(data)} bytes as file {number} where the task's settings say {size}: nothing is kept; "
                "ask KGC's operator whether both run the same version"
            )
        hashed = self._hasher(task, number)
        hashed.update(data)
        return b"".join((hashed.digest(), data))

    def _hasher(self, task: str, number: int) -> "hashlib._Hash":
        return hashlib.sha256(f"crowdfl dealt 1 {task} {self.role} {number} ".encode())
