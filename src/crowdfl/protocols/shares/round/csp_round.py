"""CSP's half of a round, as one program: it is sent SP's payloads and gives answers. Run again, it gives the same ones."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from crowdfl.crypto.sealing import AudienceKey, ReaderKey, SigningKey
from crowdfl.crypto.shares.expansion import expand
from crowdfl.protocols.shares import rules
from crowdfl.protocols.shares.chain import HASH_BYTES, RoundPlace
from crowdfl.protocols.shares.circuits.lanes import coins
from crowdfl.protocols.shares.circuits.program import CspRun, CspSide, Half
from crowdfl.protocols.shares.circuits.reciprocal import CspDivider
from crowdfl.protocols.shares.circuits.sketching import LaneMaker
from crowdfl.protocols.shares.dealing.script import DealtRound
from crowdfl.protocols.shares.round.average import AverageCoins, ShareSum, ShareSums, open_sum
from crowdfl.protocols.shares.round.checks import Checked, CheckInputs, CheckVerdict, check_program
from crowdfl.protocols.shares.round.manifest import AcceptedSet, ManifestReply, RoundManifest, open_seals, sign_verdict
from crowdfl.protocols.shares.round.rewards import RewardSealer, reward_program
from crowdfl.protocols.shares.round.upload import expanded_samples, expanded_update
from crowdfl.protocols.shares.shape import SharesShape


@dataclass(frozen=True, repr=False)
class CspKeys:
    """What CSP alone holds."""

    signing: SigningKey
    sealing: ReaderKey
    audiences: Mapping[str, AudienceKey]
    dealt: bytes  # the seed of its correlations


@dataclass(frozen=True, repr=False)
class CspInputs:
    """What a round takes from elsewhere, when it needs it."""

    seed: bytes  # all of CSP's coins of this round come from it
    dealt: Callable[[], DealtRound]
    previous: Callable[[], bytes | None]  # CSP's share of the last sum that was opened
    reading: Mapping[str, bytes]  # the participants' keys, which rewards are sealed to
    saw: Callable[[str, Sequence[int]], None]  # told what CSP sees
    watch: rules.Watch = rules.unwatched


@dataclass(repr=False)
class CspAnswer:
    """The answer to one step, and what must be kept with it."""

    payload: bytes = b""
    is_void: bool = False
    record: bytes = b""  # of the one sum, which this answer opens
    rewards: dict[str, bytes] = field(default_factory=dict)


class CspRound:
    """The program of one round, from a manifest that was found in order."""

    def __init__(self, shape: SharesShape, manifest: RoundManifest, keys: CspKeys, inputs: CspInputs) -> None:
        self._shape, self._manifest, self._keys, self._inputs = shape, manifest, keys, inputs
        self._seeds = open_seals(manifest, keys.sealing)
        self._least = shape.spec.settings.min_participants
        broken = [who for who in manifest.names if who not in self._seeds]
        self._members = AcceptedSet.without(manifest.names, broken, self._least)
        self._nonce = expand(inputs.seed, b"crowdfl csp nonce 1", 32)
        self._sums = ShareSums(shape)  # over those whose seal opens, once their shares were expanded for the lanes
        self._now = CspAnswer()
        self._run = CspRun(self._program)

    def begin(self) -> CspAnswer:
        """The answer to the manifest."""
        members = self._members
        word = sign_verdict(self._manifest, members, self._keys.signing) if members.void else b""
        return CspAnswer(ManifestReply(self._nonce, tuple(members.rejected), word).to_bytes(), is_void=bool(word))

    def answer(self, payload: bytes) -> CspAnswer:
        self._now = CspAnswer()
        self._now.payload = self._run.answer(payload)
        return self._now

    def _program(self, side: CspSide) -> Half[None]:
        if self._shape.widths.is_checked:
            checked = yield from self._check(side)
            if checked.verdict.void is not None:
                return
            if self._shape.payment:
                yield from self._reward(side, checked)
        side.heard(0)
        side.finish(self._average())

    def _check(self, side: CspSide) -> Half[Checked]:
        self._dealt = self._inputs.dealt()
        inputs = self._check_inputs()
        return (yield from check_program(side, self._dealt.lanes, self._shape.widths, inputs, self._attached))

    def _check_inputs(self) -> CheckInputs:
        names = self._manifest.names
        drawn = coins(self._manifest.digest, self._nonce)
        maker = LaneMaker(self._shape, drawn)
        previous = self._inputs.previous() if self._shape.widths.has_previous else None
        return CheckInputs(
            slots=[slot for slot, who in enumerate(names) if who in self._seeds],
            lanes=maker.lanes(self._expanded()),
            samples=[expanded_samples(seed, self.place, who) for who, seed in self._seeds.items()],
            previous=None if previous is None else maker.lanes([previous])[0],
            listed=len(names),
            least=self._least,
            context=drawn,
            salt=expand(self._inputs.seed, b"crowdfl csp accept salt 1", 32),
        )

    def _reward(self, side: CspSide, checked: Checked) -> Half[None]:
        names, divider = self._members.accepted, CspDivider(side, self._inputs.saw)
        shares = yield from reward_program(divider, self._shape, self._dealt, checked, self._inputs.watch)
        commitments = side.heard(HASH_BYTES * len(names))
        context = self._shape.spec.context(self.place.number)
        sealer = RewardSealer(context, self._keys.signing, self._inputs.reading)
        reply, self._now.rewards = sealer.seal(names, shares, commitments)
        yield from side.answer(reply.to_bytes())

    def _attached(self, verdict: CheckVerdict) -> bytes:
        self._members = self._members.judged(self._manifest.names, verdict, self._least)
        self._now.is_void = verdict.void is not None
        return sign_verdict(self._manifest, self._members, self._keys.signing)

    def _expanded(self) -> Iterator[bytes]:
        """CSP's shares one after the other, in the order of the names; what was expanded is added up too."""
        for who in self._seeds:
            shares, samples = self._share_of(who)
            self._sums.add(shares, samples)
            yield shares

    def _share_of(self, who: str) -> tuple[bytes, int]:
        seed = self._seeds[who]
        return expanded_update(seed, self.place, who, self._shape.share_bytes), expanded_samples(seed, self.place, who)

    def _average(self) -> bytes:
        members, keys = self._members, self._keys
        own, drawn = self._own_sum(), AverageCoins.of(self._inputs.seed)
        reply = open_sum(self._shape, self.place, members, own, drawn, keys.audiences, keys.signing)
        self._now.record = reply.record
        return reply.to_bytes()

    def _own_sum(self) -> ShareSum:
        """Of those who are in; where everyone was added up for the lanes, the others are taken out."""
        accepted = set(self._members.accepted)
        if not self._shape.widths.is_checked:
            return sum_of(self._shape, self.place, {who: self._seeds[who] for who in self._seeds if who in accepted})
        for who in self._seeds.keys() - accepted:
            self._sums.subtract(*self._share_of(who))
        return self._sums.result()

    @property
    def place(self) -> RoundPlace:
        return self._manifest.place


def sum_of(shape: SharesShape, place: RoundPlace, seeds: Mapping[str, bytes]) -> ShareSum:
    """CSP's share of a sum: one expansion at a time."""
    sums = ShareSums(shape)
    for who, seed in seeds.items():
        sums.add(expanded_update(seed, place, who, shape.share_bytes), expanded_samples(seed, place, who))
    return sums.result()
