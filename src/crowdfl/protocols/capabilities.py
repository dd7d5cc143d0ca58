"""What only some profiles can do, each a small protocol: whoever needs it asks with `isinstance`, and knows what follows."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from crowdfl.crypto.sealing import SigningKey
from crowdfl.crypto.shares.ring import Long
from crowdfl.errors import ClaimRefused, FormatError
from crowdfl.protocols.party import KeyedParty
from crowdfl.protocols.profile import Identity, TaskSpec, TrainFlat
from crowdfl.protocols.records import Look
from crowdfl.reasons import Reason
from crowdfl.settings import TaskSettings

NO_REFERENCE = FormatError("this task takes no reference: its settings do not say `reference = true`")
NO_CLAIMS = ClaimRefused("this task's profile has no way to prove an amount; use shares or hardened to pay claims")


# Of a profile.


@runtime_checkable
class DealsFiles(Protocol):
    """KGC deals more than bundles: files for each round."""

    def dealt_bytes(self, settings: TaskSettings, parameters: int) -> Mapping[str, int]:
        """A file, by role ("sp", "csp"), in bytes; empty for settings that need none."""

    def dealt(self, spec: TaskSpec, source: bytes, role: str, number: int) -> Iterator[bytes]:
        """A role's file of one cohort of one round, counted through, piece by piece: the same each time it is asked for."""


@runtime_checkable
class SizesClaims(Protocol):
    """Participants can prove what they have earned."""

    def claim_bytes(self, settings: TaskSettings, rounds: int) -> int: ...  # of the longest claim of so many rounds


# Of the servers.


@runtime_checkable
class Enrols(Protocol):
    """A server that knows participants by their certified keys."""

    def enrol(self, identity: Identity) -> None: ...


@runtime_checkable
class ChecksSenders(Enrols, Protocol):
    """SP where uploads are signed: it takes those of people whom it knows."""

    def strangers(self, people: Collection[str]) -> Collection[str]: ...  # those to enrol before their uploads come


@runtime_checkable
class PaysClaims(Enrols, Protocol):
    """SP where CSP attests claims; whoever claims is enrolled before."""

    def claimant(self, claim: bytes) -> str: ...  # who says to have made this claim; nothing is checked yet
    def paying(self, identity: Identity) -> "PaysClaims": ...  # to check one claim with: it knows nobody else
    def check_claim(self, claim: bytes) -> str: ...  # whose claim it is; refuses what is not worth asking CSP about
    def pay(self, claim: bytes, attestation: bytes) -> dict[int, int]: ...  # millionths to pay now, by round


@runtime_checkable
class TakesDealt(Protocol):
    """A server that computes with what KGC dealt for a round."""

    def set_dealt_loader(self, load: Callable[[int], Long]) -> None:
        """Take it from there; `DealtMaterialDamaged` if it is not there any more."""


@runtime_checkable
class SpendsRounds(Protocol):
    """CSP of rounds that leave something to destroy."""

    def spent_rounds(self, records: Look) -> Iterable[int]: ...  # those that are over for good


@runtime_checkable
class CarriesOver(Protocol):
    """SP where a round follows from the last one that was published: its uploads are bound to that too."""

    def load_previous(self, left: bytes | None) -> None:
        """What the last published round left (`carry_over`), if there was one; after `open_round`."""

    def carry_over(self) -> bytes | None:
        """After `publish`: what the next round needs of this one. Made again from the same uploads, it is the same bytes."""


@runtime_checkable
class LeavesOut(Protocol):
    """SP where an upload out of bounds costs its sender the round, and nobody else."""

    def rejected(self) -> Mapping[str, Reason]:
        """After `reward` or `publish`: whose uploads were left out, and why."""


@runtime_checkable
class TakesReference(Protocol):
    """SP where uploads can be compared with the requester's own."""

    def take_reference(self, upload: bytes) -> None:
        """The requester's upload of this round; `NO_REFERENCE` by settings without."""


# Of readers.


@runtime_checkable
class FollowsModel(Protocol):
    """A reader of averages that follow from each other: reads them in the order of the rounds, aborted ones left out."""

    def resume(self, chain: bytes | None, initial: npt.NDArray[np.float64]) -> None:
        """Go on after the last average that was read, as `chain` gave it, or from the initial weights; before anything else."""

    def chain(self) -> bytes | None: ...  # where this reader stands, to be kept: after each `read`


@runtime_checkable
class Refers(Protocol):
    """A requester that can upload what others are compared with."""

    def refer(self, train: TrainFlat, round_number: int, signing: SigningKey) -> bytes:
        """Trained from the model that it holds; `NO_REFERENCE` by settings without."""


@runtime_checkable
class ReadsRecords(Protocol):
    """A participant where CSP signs a record of each round."""

    def read_record(self, publication: bytes, round_number: int) -> tuple[bytes, Reason | None]:
        """Of the last round: the record, and why the own upload was left out, if it was."""

    def record_in(self, envelope: bytes) -> bytes: ...  # where an envelope shows one; else nothing


@runtime_checkable
class MakesClaims(Protocol):
    """A participant that can prove what it has earned."""

    def claim(self) -> bytes: ...  # signed, for all rewards opened so far


@runtime_checkable
class TakesRandomizers(Protocol):
    """A participant whose uploads are encrypted with randomizers, which can be made ahead of time."""

    @property
    def party(self) -> KeyedParty: ...
    def upload_randomizers(self) -> int: ...  # how many an update takes


@runtime_checkable
class ScalesDown(Protocol):
    """A participant that keeps the task's `max_norm`."""

    @property
    def scaled(self) -> float | None: ...  # the factor by which it scaled the last update, if it was too long
