"""The profile `shares`: additive shares between two servers, and no public-key arithmetic at all."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from crowdfl.crypto.signing import SigningKey
from crowdfl.errors import NotReady, ProtocolError, SettingsError, UploadRejected
from crowdfl.privacy import AverageNoise, noise_length
from crowdfl.protocols import claims
from crowdfl.protocols.capabilities import no_reference
from crowdfl.protocols.claim_steps import claim_bytes
from crowdfl.protocols.claims import RewardEnvelope, RewardForm
from crowdfl.protocols.common.paid import PaidParticipant
from crowdfl.protocols.messages import Limits, Message
from crowdfl.protocols.party import Party
from crowdfl.protocols.profile import (
    Audience,
    Average,
    Dealing,
    ParticipantKeys,
    RoundWord,
    TaskSpec,
    Tools,
    TrainFlat,
    whole_samples,
)
from crowdfl.protocols.records import Look
from crowdfl.protocols.shares.chain import ROUND_BYTES, ModelChain
from crowdfl.protocols.shares.dealing.keys import (
    PARTICIPANTS,
    REQUESTER,
    SharesCspBundle,
    SharesReaderBundle,
    SharesSpBundle,
    deal_keys,
)
from crowdfl.protocols.shares.dealing.rounds import dealt_file, file_bytes
from crowdfl.protocols.shares.reference import LONGEST, OPPOSED, REQUESTER_NAME
from crowdfl.protocols.shares.round.average import AverageReader, OpenedAverage, RoundRecord, parse_record
from crowdfl.protocols.shares.round.bonus import BonusWord, KeptOpened, KeptVoid, open_bonus
from crowdfl.protocols.shares.round.csp import SharesCsp
from crowdfl.protocols.shares.round.csp_records import MOST_UNSHOWN, KeptRound
from crowdfl.protocols.shares.round.ends import open_end
from crowdfl.protocols.shares.round.manifest import AcceptedSet
from crowdfl.protocols.shares.round.rewards import open_envelope, open_part
from crowdfl.protocols.shares.round.sp import SharesSp
from crowdfl.protocols.shares.round.steps import BONUS_ENVELOPE, Facts
from crowdfl.protocols.shares.round.upload import UpdateEncoder, make_upload
from crowdfl.protocols.shares.shape import SharesShape, shape_of
from crowdfl.protocols.steps import limits
from crowdfl.reasons import Reason
from crowdfl.settings import DELTA, TaskSettings


class _ChainReader:
    """Whoever holds the model: reads one average after the other, each from the one before."""

    def __init__(self, party: Party, shape: SharesShape, bundle: SharesReaderBundle, audience: str) -> None:
        bundle.require_ring(shape.widths.k)
        self.party, self.fingerprint, self._shape = party, bundle.fingerprint, shape
        self._reader = AverageReader(shape, audience, bundle.reader(audience), bundle.csp_signing)
        self._model: ModelChain | None = None

    def resume(self, chain: bytes | None, initial: npt.NDArray[np.float64]) -> None:
        spec, step = self._shape.spec, self._shape.step
        if chain is None:
            self._model = ModelChain.start(spec.name, initial, self._shape.widths.unit, step)
        else:
            self._model = ModelChain.from_bytes(chain, spec.parameters, step)

    def chain(self) -> bytes | None:
        return None if self._model is None else self._model.to_bytes()

    def read(self, publication: bytes, round_number: int) -> Average:
        return self._read(publication, round_number)[0]

    def _read(self, publication: bytes, round_number: int) -> tuple[Average, AcceptedSet]:
        before, unit = self._followed(), self._shape.widths.unit
        opened = self._reader.read(publication, round_number, before)
        self._model = opened.chain
        average = Average(opened.average / unit, opened.total, record=opened.record, noise=self._noise(before, opened))
        if self._shape.step is not None:
            model = opened.chain.weights / unit
            average = replace(average, stepped=model, state=opened.chain.digest())
        return average, opened.members

    def _noise(self, before: ModelChain, opened: OpenedAverage) -> AverageNoise | None:
        settings, parameters = self._shape.spec.settings, self._shape.spec.parameters
        if settings.sigma is None:
            return None
        change = float(np.linalg.norm((opened.average - before.weights) / self._shape.widths.unit))
        return AverageNoise.of(settings, parameters, len(opened.members.accepted), change)

    def _followed(self) -> ModelChain:
        if self._model is None:
            raise NotReady("the model that this reader holds is not known: `follow` it from the initial weights first")
        return self._model


class SharesRequester(_ChainReader):
    """The requester reads every average, the last one too."""

    def __init__(self, party: Party, shape: SharesShape, bundle: SharesReaderBundle) -> None:
        super().__init__(party, shape, bundle, REQUESTER)
        self._bundle, self._encoder = bundle, UpdateEncoder(shape)

    def refer(self, train: TrainFlat, round_number: int, signing: SigningKey) -> bytes:
        """What the others' updates are compared with: shared and sealed as a phone's."""
        if not self._shape.widths.has_reference:
            raise no_reference()
        model = self._followed()
        update = self._encoder.encode(train(model.weights / self._shape.widths.unit), model, 1)
        place = self._shape.place(round_number, model.base)
        sealing = self._bundle.csp_sealing
        return self.party.send(make_upload(self._shape, place, REQUESTER_NAME, signing, sealing, update, 1))


class SharesParticipant(_ChainReader, PaidParticipant):
    """A phone."""

    def __init__(self, party: Party, shape: SharesShape, bundle: SharesReaderBundle, keys: ParticipantKeys) -> None:
        _ChainReader.__init__(self, party, shape, bundle, PARTICIPANTS)
        PaidParticipant.__init__(self, party, shape.spec, keys, bundle.csp_signing)
        shape.require_moving()  # or a requester could hold the model still, and subtract
        self.bundle, self._encoder = bundle, UpdateEncoder(shape)

    @property
    def clipped(self) -> int:
        return self._encoder.clipped

    @property
    def scaled(self) -> float | None:
        return self._encoder.scaled

    @property
    def length(self) -> float:
        return self._encoder.length

    def encrypt_update(self, weights: npt.NDArray[np.float64], samples: int, round_number: int) -> bytes:
        """SP's shares of the change since the model that is held, and the seed of CSP's, sealed; that is fresh each time."""
        samples, model = whole_samples(samples), self._followed()
        update = self._encoder.encode(weights, model, samples)
        place = self._shape.place(round_number, model.base)
        sealing = self.bundle.csp_sealing
        return self.party.send(make_upload(self._shape, place, self.who, self.signing, sealing, update, samples))

    def open_reward(self, envelope: bytes, round_number: int) -> int:
        """Of equal parts CSP's signed record says it all; what it says of a round is the same wherever it is read."""
        self._shape.require_rewards()
        if self._shape.is_reward_hidden:
            return super().open_reward(envelope, round_number)
        if round_number == claims.BONUS:
            return self._open_bonus(envelope)
        shown = RewardEnvelope.from_bytes(envelope, self._shape.limits())
        record = parse_record(shown.sealed, self._shape, self.bundle.csp_signing)
        if (record.task, record.number) != (self._shape.spec.name, round_number):
            raise ProtocolError(f"what was shown for round {round_number} is CSP's record of another round or task")
        amount = open_part(self._shape, record, self.who)
        if amount is None:
            reason = record.members.rejected.get(self.who, Reason.NOT_PASSED_ON)
            raise UploadRejected(reason.words, reason)
        self._earned(round_number, open_envelope(shown.sealed), amount)
        return amount

    def _open_bonus(self, envelope: bytes) -> int:
        """CSP's signed word says who gets it."""
        shown = RewardEnvelope.from_bytes(envelope, limits(BONUS_ENVELOPE, Facts.most(self._shape)))
        word = open_bonus(shown.sealed, self._shape, self.bundle.csp_signing)
        if self.who not in word.names:
            raise UploadRejected("CSP's word about the bonus does not name you: a round that asked you is missing")
        self._earned(claims.BONUS, open_envelope(shown.sealed), self._shape.bonus)
        return self._shape.bonus

    def _reward_form(self) -> RewardForm:
        self._shape.require_rewards()
        return self._shape.reward_form

    def read(self, publication: bytes, round_number: int) -> Average:
        average, members = self._read(publication, round_number)
        return replace(average, standing=self._standing(members))

    def read_record(self, publication: bytes, round_number: int) -> tuple[bytes, Reason | None]:
        record, members = self._reader.read_record(publication, round_number, self._followed())
        return record, self._standing(members)

    def record_in(self, envelope: bytes) -> bytes:
        if self._shape.is_reward_hidden:
            return b""
        return RewardEnvelope.from_bytes(envelope, self._shape.limits()).sealed

    @property
    def record_key(self) -> bytes:
        return self.bundle.csp_signing

    def standing_in(self, record: bytes) -> Reason | None:
        return self._standing(parse_record(record, self._shape, self.record_key).members)

    def reward_by(self, record: bytes) -> bytes | None:
        """Equal parts follow from it; no other reward does."""
        return None if self._shape.is_reward_hidden or not self._shape.payment else open_envelope(record).to_bytes()

    def read_end(self, end: bytes, round_number: int) -> RoundWord:
        task, key = self._shape.spec.name, self.bundle.csp_signing
        if Message.kind_of(end) == RoundRecord.kind:
            record = parse_record(end, self._shape, key)
            if (record.task, record.number) != (task, round_number):
                raise ProtocolError(f"what was shown for round {round_number} is CSP's record of another round or task")
            return RoundWord(self._standing(record.members), shown=True, record=end)
        found = open_end(end, task, round_number, self._shape.limits(), key)
        return RoundWord(found.standing(self.who), shown=self.who in found.shown)

    def _standing(self, members: AcceptedSet) -> Reason | None:
        return None if self.who in members.accepted else members.rejected.get(self.who, Reason.NOT_PASSED_ON)


def _counting(shape: SharesShape) -> str:
    """How people count, in words."""
    settings = shape.spec.settings
    if shape.widths.has_counts:
        return (
            "people         count by their samples: readers learn the total, and by who comes or goes a person's number"
        )
    most = float(settings.max_norm or 0) / settings.min_participants
    return (
        "people         count once; no number of samples leaves a device. One within `max_norm` moves an average of "
        f"{settings.min_participants} by at most {most:.3g}"
    )


def _privacy(shape: SharesShape) -> list[str]:
    """What noise does for each person, and to the average."""
    settings = shape.spec.settings
    people = settings.min_participants, settings.most_in_round
    noise = " to ".join(
        f"{noise_length(settings, shape.spec.parameters, count):.3g}" for count in dict.fromkeys(people)
    )
    return [
        f"privacy        epsilon {settings.epsilon}, delta {settings.delta or DELTA:g} for each person, over {settings.rounds} "
        "rounds, against all readers and one server that follows the protocol",
        f"noise          {noise} on an average of {' to '.join(map(str, dict.fromkeys(people)))} people, where an update is at "
        f"most {settings.max_norm} long; of each server {settings.sigma} units an entry, {settings.noise_ratio:.3g} times that",
    ]


def _reference() -> list[str]:
    return [
        f"reference      leaves out who is more than {float(LONGEST)} times as long as the requester's own update, has a "
        f"cosine below -{float(OPPOSED)} with it, or goes against it over all rounds; of each person and round the requester, "
        "who chooses its direction, learns that one bit. A round without it waits, and is then given up",
    ]


_PAY = {
    "fixed": "pay            fixed: so much for each round that counts a person; a bonus for who was in all that asked them",
    "equal": "pay            equal: everyone in a round's average gets the same",
    "samples": "pay            samples: a part as large as one's part of all samples; a claim shows both servers the number",
}
_LARGEST_ROUND = 2 ** (8 * ROUND_BYTES) - 1


class SharesProfile:
    """Deals seeds and correlations; whoever holds them can decrypt nothing."""

    name = "shares"
    most_unshown = MOST_UNSHOWN

    def audience(self, *, final: bool) -> Audience:
        """Of the last round participants read the record alone."""
        del final
        return Audience.EVERYONE

    def check(self, settings: TaskSettings, parameters: int) -> None:
        if settings.rounds > _LARGEST_ROUND:
            raise SettingsError(f"`rounds` is {settings.rounds}; this profile counts at most {_LARGEST_ROUND}")
        if settings.pay == "none" and settings.budget is not None:  # it would be announced, escrowed, and never paid
            raise SettingsError('pay = "none" pays nobody: leave `budget` out, or name a rule that pays')
        shape = SharesShape(TaskSpec("", settings, parameters))
        shape.require_moving()
        shape.require_computable()
        shape.require_signal()

    def explain(self, settings: TaskSettings, parameters: int) -> str:
        shape = SharesShape(TaskSpec("", settings, parameters))
        lines = [shape.widths.explain(), _counting(shape)]
        if settings.epsilon is not None:
            lines += _privacy(shape)
        if settings.reference:
            lines += _reference()
        if shape.payment:
            lines.append(shape.rule_widths.explain() if shape.is_reward_computed else _PAY[shape.pay])
        moves = f"model          moves a weight by at most {shape.furthest:.3g} in a round"
        if shape.step is not None:
            step = settings.server_step
            moves = f"server step    {step}: moves a weight by at most {shape.furthest:.3g} in a round"
        return "\n".join([*lines, moves])

    def claim_bytes(self, settings: TaskSettings, rounds: int) -> int:
        return claim_bytes(rounds, SharesShape(TaskSpec("", settings, 0)).reward_form.width)

    def claims_bundle(self, bundle: bytes) -> bytes:
        own = SharesCspBundle.from_bytes(bundle, Limits.plain())
        return replace(own, seed=bytes(len(own.seed)), sealing=bytes(len(own.sealing))).to_bytes()

    def attesting_key(self, bundle: bytes) -> SigningKey:
        return SigningKey(SharesCspBundle.from_bytes(bundle, Limits.plain()).signing)

    def close_steps(self, spec: TaskSpec, records: Look) -> Collection[int]:
        for number in range(1, spec.settings.rounds + 1):
            now = records.get(KeptRound, number)
            if now is not None:
                records.put(replace(now, seed=b"", heard=(), sums=""), number)
        kept = KeptOpened.kind, KeptVoid.kind, BonusWord.kind
        return KeptRound.kind, claims.KeptReward.kind, claims.KeptClaim.kind, claims.KeptPlace.kind, *kept

    def rewarded(self, spec: TaskSpec, records: Look) -> Iterator[tuple[int, str]]:
        """Everyone in a record, where the task pays."""
        shape = shape_of(spec)
        for number in range(1, (spec.settings.rounds if shape.payment else 0) + 1):
            now = records.get(KeptRound, number)
            if now is not None and now.record:
                record = RoundRecord.from_bytes(now.record, shape.limits())
                yield from ((number, who) for who in record.accepted)
        word = records.get(BonusWord) if shape.bonus else None
        yield from ((claims.BONUS, who) for who in (word.names if word is not None else ()))

    def pays_openly(self, settings: TaskSettings) -> bool:
        shape = SharesShape(TaskSpec("", settings, 0))
        return bool(shape.payment) and not shape.is_reward_hidden

    def deal(self, spec: TaskSpec, *, insecure_test_key: bool) -> Dealing:
        """There is no key whose length could make it insecure."""
        del insecure_test_key
        self.check(spec.settings, spec.parameters)
        return deal_keys(shape_of(spec).widths.k)

    def dealt_bytes(self, settings: TaskSettings, parameters: int) -> Mapping[str, int]:
        shape = SharesShape(TaskSpec("", settings, parameters))
        return file_bytes(shape)

    def dealt(self, spec: TaskSpec, source: bytes, role: str, number: int) -> Iterator[bytes]:
        return dealt_file(shape_of(spec), source, role, number)

    def sp(self, spec: TaskSpec, bundle: bytes, tools: Tools) -> SharesSp:
        return SharesSp(tools.party("SP"), shape_of(spec), SharesSpBundle.from_bytes(bundle, Limits.plain()))

    def csp(self, spec: TaskSpec, bundle: bytes, tools: Tools) -> SharesCsp:
        return SharesCsp(tools.party("CSP"), shape_of(spec), SharesCspBundle.from_bytes(bundle, Limits.plain()))

    def requester(self, spec: TaskSpec, bundle: bytes, tools: Tools) -> SharesRequester:
        own = SharesReaderBundle.from_bytes(bundle, Limits.plain())
        return SharesRequester(tools.party("requester"), shape_of(spec), own)

    def participant(self, spec: TaskSpec, bundle: bytes, keys: ParticipantKeys, tools: Tools) -> SharesParticipant:
        own = SharesReaderBundle.from_bytes(bundle, Limits.plain())
        return SharesParticipant(tools.party("participant"), shape_of(spec), own, keys)
