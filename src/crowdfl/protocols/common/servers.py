"""What the servers of profiles with a key do alike: SP counts each upload once and serves what it made, CSP answers by kind."""

from collections.abc import Callable, Mapping, Sequence

from crowdfl.crypto.paillier.vector import CipherVector, RunningProduct, Unchecked, form_bytes
from crowdfl.errors import AlreadyCounted, CrowdFLError, FormatError, LengthMismatch, TooFewParticipants
from crowdfl.protocols.common.keyed import KeyedCsp, KeyedSp
from crowdfl.protocols.messages import Message
from crowdfl.protocols.party import KeyedParty
from crowdfl.protocols.profile import KeyedTask

_Answer = Callable[[bytes], bytes]


class BaseSp(KeyedSp):
    """The uploads of a round. `length` ciphertexts make an upload, of which `summed` are added up."""

    averages_first = False

    def __init__(self, party: KeyedParty, task: KeyedTask, length: int, summed: int) -> None:
        self.party, self.task, self._length, self._summed = party, task, length, summed
        self.open_round(1)

    def open_round(self, round_number: int) -> None:
        self.round_number = round_number
        most = self.task.settings.max_participants
        self._products = RunningProduct(self.party.public, self._summed, most, backend=self.party.compute)
        self._uploads: dict[str, bytes] = {}  # by participant, the hash of what was counted
        self._vectors: dict[str, CipherVector] = {}
        self._publication: Message | None = None
        self._envelopes: Mapping[str, Message] = {}

    def add(self, who: str, upload: bytes) -> None:
        self.add_all({who: upload})

    def add_all(self, uploads: Mapping[str, bytes], *, validated: bool = False) -> None:
        raise NotImplementedError

    def upload_bytes(self) -> int:
        return form_bytes(self.party.public, self._length)

    def refusals(self, uploads: Sequence[tuple[str, bytes]]) -> list[CrowdFLError | None]:
        return self.party.refusals((upload for _, upload in uploads), self._unchecked)

    def check(self) -> None:
        """Refuse a set of uploads that is too small to protect those in it."""
        fewest = self.task.settings.min_participants
        if len(self._uploads) < fewest:
            raise TooFewParticipants(f"{len(self._uploads)} uploads, {fewest} needed to protect those who took part")

    def publication(self) -> bytes:
        """For members of the audience alone, never for CSP."""
        if self._publication is None:
            raise FormatError("nothing is published yet")
        return self.party.send(self._publication)

    def envelopes(self) -> Mapping[str, bytes]:
        return {who: self.party.send(envelope) for who, envelope in self._envelopes.items()}

    def _is_counted(self, who: str, digest: bytes) -> bool:
        if self._uploads.get(who, digest) != digest:
            raise AlreadyCounted(f"an upload of {who} is in this round already, with other contents")
        return who in self._uploads

    def _parse(self, upload: bytes, *, validated: bool) -> CipherVector:
        numbers = self._unchecked(upload)
        return numbers.trusted() if validated else numbers.validate(backend=self.party.compute)

    def _unchecked(self, upload: bytes) -> Unchecked:
        vector = Unchecked.parse(upload, self.party.public, max_count=self._length)
        if len(vector) != self._length:
            raise LengthMismatch(f"an upload of {len(vector)} ciphertexts where {self._length} are expected")
        return vector


class BaseCsp(KeyedCsp):
    """Answers by the kind of the request; a profile fills the table."""

    def __init__(self, party: KeyedParty) -> None:
        self.party = party
        self._answers: dict[int, _Answer] = {}

    def answer(self, request: bytes) -> bytes:
        return self._answer_to(request)(request)

    def _answer_to(self, request: bytes) -> _Answer:
        kind = Message.kind_of(request)
        if kind not in self._answers:
            raise FormatError(f"CSP does not answer messages of kind {kind} in this task")
        return self._answers[kind]
