"""What the sides of every profile with a Paillier key have alike.

Nothing is dealt for single rounds, and no average follows from another one. An upload out of bounds ends its round: none is
left out.
"""

import hashlib
import math
from collections.abc import Mapping, Sequence

from crowdfl.crypto.compute import Read
from crowdfl.crypto.long_bytes import Long
from crowdfl.crypto.paillier.vector import CipherVector, RunningProduct, Unchecked, form_bytes
from crowdfl.errors import (
    AlreadyCounted,
    CrowdFLError,
    FormatError,
    InvalidKey,
    LengthMismatch,
    SettingsError,
    TooFewParticipants,
)
from crowdfl.protocols.exchange import ReplyForm
from crowdfl.protocols.messages import Message
from crowdfl.protocols.party import KeyedParty
from crowdfl.protocols.profile import Audience, KeyedTask, RoleProtocol
from crowdfl.settings import TaskSettings

_GROUP = 15  # uploads multiplied in at once: sixteen factors with the sum so far
_GROUP_BYTES = 32 * 2**20  # of a group, held twice while it is multiplied in; a longer upload goes in alone


def keyed_party(side: RoleProtocol) -> KeyedParty:
    """The party of a side whose profile has a key."""
    if not isinstance(side.party, KeyedParty):
        raise InvalidKey("this task has no key: its profile works without one")
    return side.party


class KeyedSide:
    """The dealing's fingerprint is its public key's."""

    party: KeyedParty

    @property
    def fingerprint(self) -> bytes:
        return self.party.public.fingerprint


class KeyedProfile:
    """Rewards by the paper's Eq. 10. Every average stands for itself, and no record of CSP's shows who is in it."""

    name: str
    most_unshown = math.inf

    def audience(self, *, final: bool) -> Audience:
        return Audience.REQUESTER if final else Audience.PARTICIPANTS

    def check_settings(self, settings: TaskSettings) -> None:
        """Refuse what another profile has and this one has not: it would be ignored."""
        wrong = []
        if settings.pay not in (None, "distance"):
            wrong.append(f'pay = "{settings.pay}"')
        if settings.check != "bounds":
            wrong.append(f'check = "{settings.check}"')
        if settings.epsilon is not None:
            wrong.append(f"epsilon = {settings.epsilon}")
        if settings.weighting != "samples":
            wrong.append(f'weighting = "{settings.weighting}"')
        if settings.max_norm is not None:
            wrong.append(f"max_norm = {settings.max_norm}")
        if settings.server_step != "none":  # the requester reads the last average alone, and could not follow the steps
            wrong.append(f'server_step = "{settings.server_step}"')
        if wrong:
            raise SettingsError(
                f"the profile {self.name} has no {' and no '.join(wrong)}: leave it out, or choose the profile shares"
            )


def upload_digest(upload: bytes) -> bytes:
    """Names an upload, to tell a repeat from a change."""
    return hashlib.sha256(upload).digest()


class BaseSp(KeyedSide):
    """The uploads of a round. `length` ciphertexts make an upload, of which `summed` are added up."""

    answers: Mapping[type[Message], type[Message]] = {}  # what CSP answers to each request

    def __init__(self, party: KeyedParty, task: KeyedTask, length: int, summed: int) -> None:
        self.party = party
        self.task = task
        self._length = length
        self._summed = summed
        self.open_round(1)

    def open_round(self, round_number: int) -> None:
        self.round_number = round_number
        most = self.task.settings.most_in_round
        self._products = RunningProduct(self.party.public, self._summed, most, backend=self.party.compute)
        self._uploads: dict[str, bytes] = {}  # by participant, the hash of what was counted
        self._vectors: dict[str, CipherVector] = {}
        self._names: dict[str, str] = {}  # of those that are read again from a store
        self._read: Read | None = None
        self._publication: Message | None = None
        self._envelopes: Mapping[str, Message] = {}

    def add_all(self, uploads: Mapping[str, bytes], *, validated: bool = False) -> None:
        raise NotImplementedError

    def add_stored(self, folder: str, names: Mapping[str, str], read: Read) -> None:
        self._read = read
        people = list(names)
        self._names |= {who: folder + name for who, name in names.items()}
        size = max(1, min(_GROUP, _GROUP_BYTES // self.upload_bytes()))
        for start in range(0, len(people), size):
            self.add_all({who: read(folder + names[who]) for who in people[start : start + size]}, validated=True)

    def upload_bytes(self) -> int:
        return form_bytes(self.party.public, self._length)

    def head_bytes(self) -> int:
        return self.upload_bytes()

    def refusals(self, uploads: Sequence[tuple[str, bytes]], *, heads: bool = False) -> list[CrowdFLError | None]:
        del heads  # an upload is all head
        return self.party.refusals((upload for _, upload in uploads), self._unchecked)

    def reply_form(self, request: Long) -> ReplyForm:
        kind = Message.kind_of(request)
        replies = {asked.kind: answer for asked, answer in self.answers.items()}
        return ReplyForm(self._longest_reply(kind), replies[kind].require_form)

    def _longest_reply(self, kind: int) -> int:
        """Of CSP, to a request of this kind."""
        raise NotImplementedError

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
