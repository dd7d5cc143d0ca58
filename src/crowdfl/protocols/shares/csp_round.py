"""CSP's half of a round, as one program: it is sent SP's payloads and gives answers. Run again, it gives the same ones."""

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field

from crowdfl.crypto.sealing import AudienceKey, ReaderKey, SigningKey
from crowdfl.crypto.shares.expansion import expand
from crowdfl.errors import LengthMismatch
from crowdfl.protocols.shares.average import AverageCoins, ShareSum, ShareSums, open_sum
from crowdfl.protocols.shares.chain import RoundPlace
from crowdfl.protocols.shares.manifest import (
    BROKEN_SEAL,
    AcceptedSet,
    Manifest,
    ManifestReply,
    open_seals,
    sign_verdict,
)
from crowdfl.protocols.shares.shape import SharesShape
from crowdfl.protocols.shares.upload import expanded_samples, expanded_update

Answers = Generator["CspAnswer", bytes, None]


@dataclass(frozen=True, repr=False)
class CspKeys:
    """What CSP alone holds."""

    signing: SigningKey
    sealing: ReaderKey
    audiences: Mapping[str, AudienceKey]
    dealt: bytes  # the seed of its correlations


@dataclass(frozen=True, repr=False)
class CspAnswer:
    """The answer to one step, and what must be kept with it."""

    payload: bytes
    word: bytes = b""
    is_abort: bool = False
    record: bytes = b""  # of the one sum, which this answer opens
    rewards: Mapping[str, bytes] = field(default_factory=dict)


class CspRound:
    """The program of one round, from a manifest that was found in order."""

    def __init__(self, shape: SharesShape, manifest: Manifest, seed: bytes, keys: CspKeys) -> None:
        self._shape, self._manifest, self._seed, self._keys = shape, manifest, seed, keys
        self._seeds: dict[str, bytes] = {}

    @property
    def _place(self) -> RoundPlace:
        return self._manifest.place

    def run(self) -> Answers:
        self._seeds = open_seals(self._manifest, self._keys.sealing)
        broken = {who: BROKEN_SEAL for who in self._manifest.names if who not in self._seeds}
        members = AcceptedSet.of(self._manifest.names, broken)
        nonce = expand(self._seed, b"crowdfl csp nonce 1", 32)
        opening = ManifestReply(nonce, tuple(broken)).to_bytes()
        if not members.is_open(self._least):
            yield CspAnswer(opening, self._word(members), is_abort=True)
            return
        yield CspAnswer(opening)
        yield self._average(members)

    @property
    def _least(self) -> int:
        return self._shape.spec.settings.min_participants

    def _word(self, members: AcceptedSet) -> bytes:
        return sign_verdict(self._manifest, members, self._keys.signing, self._least).to_bytes()

    def _average(self, members: AcceptedSet) -> CspAnswer:
        reply = open_sum(
            self._shape,
            self._place,
            members,
            self._own_sum(members),
            AverageCoins.of(self._seed),
            self._keys.audiences,
            self._keys.signing,
        )
        return CspAnswer(reply.to_bytes(), record=reply.record)

    def _own_sum(self, members: AcceptedSet) -> ShareSum:
        return sum_of(self._shape, self._place, {who: self._seeds[who] for who in members.accepted})


def sum_of(shape: SharesShape, place: RoundPlace, seeds: Mapping[str, bytes]) -> ShareSum:
    """CSP's share of a sum: one expansion at a time."""
    sums = ShareSums(shape)
    for who, seed in seeds.items():
        sums.add(expanded_update(seed, place, who, shape.share_bytes), expanded_samples(seed, place, who))
    return sums.result()
