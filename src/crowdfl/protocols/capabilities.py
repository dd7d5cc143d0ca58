"""What only some profiles can do, each a small protocol: whoever needs it asks with `isinstance`, and knows what follows."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from crowdfl.crypto.long_bytes import Long
from crowdfl.crypto.signing import SigningKey
from crowdfl.errors import FormatError
from crowdfl.protocols.claims import PayStatement
from crowdfl.protocols.exchange import Exchange
from crowdfl.protocols.party import KeyedParty
from crowdfl.protocols.profile import RoundWord, TaskSpec, TrainFlat
from crowdfl.protocols.records import Look, Outcome
from crowdfl.reasons import Reason
from crowdfl.settings import TaskSettings


def no_reference() -> FormatError:
    return FormatError("this task takes no reference: its settings do not say `reference = true`")


# Of a profile.


@runtime_checkable
class DealsFiles(Protocol):
    """KGC deals more than bundles: files for each round."""

    def dealt_bytes(self, settings: TaskSettings, parameters: int) -> Mapping[str, int]:
        """A file, by role ("sp", "csp"), in bytes; empty for settings that need none."""

    def dealt(self, spec: TaskSpec, source: bytes, role: str, number: int) -> Iterator[bytes]:
        """A role's file of one cohort of one round, counted through, piece by piece: the same each time it is asked for."""


@runtime_checkable
class PaysOpenly(Protocol):
    """A reward need not be hidden."""

    def pays_openly(self, settings: TaskSettings) -> bool:
        """Whether anyone can compute what a round pays from CSP's record of it: then it is claimed as soon as it is rewarded.
        Other amounts would tell servers more between rounds, and are claimed after the last."""


@runtime_checkable
class CountsRewarded(Protocol):
    """CSP's records say who has earned something."""

    def rewarded(
        self, spec: TaskSpec, records: Look
    ) -> Iterator[tuple[int, str]]: ...  # each round with everyone in it


@runtime_checkable
class ClosesRounds(Protocol):
    """CSP takes no step of a task that its requester has cancelled, once SP has told it so."""

    def cancellation(self, spec: TaskSpec, signing: SigningKey) -> bytes: ...  # the requester's word, a request to CSP

    def check_cancellation(self, spec: TaskSpec, data: bytes) -> None:
        """SP, before it takes an order: CSP will take this."""


# Of the servers.


@runtime_checkable
class AnswersLong(Protocol):
    """CSP's half looks at requests where they lie: they may be as long as a model."""

    def answer_long(self, records: Look, request: Long) -> Outcome: ...  # as `answer`


@runtime_checkable
class ChecksSenders(Protocol):
    """SP where uploads are signed: it takes those of people whom it knows."""

    def strangers(self, people: Collection[str]) -> Collection[str]: ...  # those to enrol before their uploads come


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
class HearsEnds(Protocol):
    """SP where CSP signs what became of a round that was given up."""

    def ask_end(self, round_number: int) -> tuple[bytes, int]: ...  # the question, and bytes of the longest answer

    def is_opened(self, reply: bytes, round_number: int) -> bool:
        """Whether CSP has opened its sum all the same; refuses what is not CSP's signed word about this round."""


@runtime_checkable
class ReadsUnclaimed(Protocol):
    """SP where CSP's records say what somebody has earned who has not claimed it."""

    def unclaimed(self, who: str, reply: bytes) -> tuple[Mapping[int, int], PayStatement]: ...  # and for the payer


@runtime_checkable
class PaysBonus(Protocol):
    """SP where CSP says who was in every round that asked them."""

    def tell_opened(self, round_number: int, drawn: Collection[str]) -> tuple[bytes, int]: ...  # and the longest answer
    def ask_bonus(self) -> tuple[bytes, int]: ...

    def bonus_people(self, word: bytes) -> Collection[str]:
        """Who gets it; refuses what is not CSP's signed word about this task."""

    def bonus_envelope(self, word: bytes) -> bytes: ...  # what each participant is served


@runtime_checkable
class ShowsRecord(Protocol):
    """SP where those who may not read a round's average are shown CSP's record of it."""

    def record_publication(self) -> bytes: ...  # after `publish`


@runtime_checkable
class HoldsAverage(Protocol):
    """SP where a round may be averaged again, for late uploads, until its average is published."""

    def hold(self) -> Exchange: ...  # average, and show it to nobody
    def held(self) -> bytes: ...  # after `hold`: the encrypted average, and of which uploads it is

    def take_held(self, held: bytes) -> bool:
        """Go on with an average that was held; False if it is not of exactly the uploads that are in."""

    def holds(self, held: bytes, uploads: Mapping[str, str]) -> bool:
        """Whether an average that was held is of exactly these, by who sent them and their names."""


@runtime_checkable
class LeavesOut(Protocol):
    """SP where an upload out of bounds costs its sender the round, and nobody else."""

    def rejected(self) -> Mapping[str, Reason]:
        """After `reward` or `publish`: whose uploads were left out, and why."""


@runtime_checkable
class TakesReference(Protocol):
    """SP where uploads can be compared with the requester's own."""

    def take_reference(self, upload: bytes) -> None:
        """The requester's upload of this round; `no_reference` by settings without."""


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
        """Trained from the model that it holds; `no_reference` by settings without."""


@runtime_checkable
class ReadsRecords(Protocol):
    """A participant where CSP signs a record of each round."""

    @property
    def record_key(self) -> bytes: ...  # what they are checked with

    def standing_in(
        self, record: bytes
    ) -> Reason | None: ...  # why the own upload was left out, by a record that is kept

    def read_record(self, publication: bytes, round_number: int) -> tuple[bytes, Reason | None]:
        """Of the last round: the record, and why the own upload was left out, if it was."""

    def read_end(self, end: bytes, round_number: int) -> RoundWord:
        """Of a round that SP has given up: CSP's signed word about it."""


@runtime_checkable
class PaysByRecord(ReadsRecords, Protocol):
    """A participant where CSP's record may say what a round pays."""

    def record_in(self, envelope: bytes) -> bytes: ...  # where an envelope shows one; else nothing
    def reward_by(self, record: bytes) -> bytes | None: ...  # the envelope, where a record says what it pays


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
    @property
    def length(self) -> float: ...  # of the last update, as it was sent
