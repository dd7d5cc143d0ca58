"""The profile `paper`: Algorithms 1 to 4 as printed, misprints corrected. For fidelity: `crowdfl audit` shows what it leaks."""

import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
from gmpy2 import mpz

from crowdfl.crypto.blocks import to_ints
from crowdfl.crypto.coins import Coins
from crowdfl.crypto.encoding import FixedPoint
from crowdfl.crypto.paillier import pctd
from crowdfl.crypto.paillier.budget import WidthBudget, bits
from crowdfl.crypto.paillier.pctd import KeyShare, PrivateKey, PublicKey
from crowdfl.crypto.paillier.vector import CipherVector, PartialVector, signed_residues
from crowdfl.crypto.signing import SigningKey
from crowdfl.errors import (
    FormatError,
    InvalidKey,
    MasksDoNotFit,
    RewardOutOfRange,
    RewardsOff,
    SettingsError,
    SlotOverflow,
    WidthBudgetExceeded,
)
from crowdfl.protocols import claims
from crowdfl.protocols.claim_steps import claim_bytes
from crowdfl.protocols.common.keyed import BaseSp, KeyedProfile, KeyedSide, upload_digest
from crowdfl.protocols.common.paid import PaidParticipant, PaidSp, Roster
from crowdfl.protocols.common.sdiv import PaperSdivCsp, PaperSdivSp, SdivReply, SdivRequest
from crowdfl.protocols.common.smul import PaperSmulCsp, SmulReply, SmulRequest
from crowdfl.protocols.exchange import Exchange
from crowdfl.protocols.messages import Limits, Message
from crowdfl.protocols.paper import steps
from crowdfl.protocols.paper.claims import KeptDifference, PaperClaimsCsp, Units, digest, open_claim
from crowdfl.protocols.paper.prirwd import PaperRewardSp, PaperRewardWidths
from crowdfl.protocols.party import KeyedParty
from crowdfl.protocols.profile import (
    Average,
    Dealing,
    Identity,
    KeyedTask,
    ParticipantKeys,
    SpRecord,
    Stage,
    TaskSpec,
    Tools,
    whole_samples,
)
from crowdfl.protocols.records import Look, Outcome
from crowdfl.reasons import Reason
from crowdfl.settings import TaskSettings, to_millionths

_SIGMA = 80
_LARGEST_PAYMENT = to_millionths(1_000_000)


class PaperPublication(Message, kind=23):
    """SP to readers: [[average]] and, unless it is for the requester, SP's half of its decryption."""

    average: CipherVector
    average_1: PartialVector


class PaperHeld(Message, kind=92):
    """SP's own: [[average]], and the hash of the uploads that it is of."""

    uploads: bytes
    average: CipherVector


class PaperReward(Message, kind=24):
    """SP to a participant: [[mu_i]] and SP's half of its decryption."""

    mu: CipherVector
    mu_1: PartialVector


class PaperBundle(Message, kind=33, repr=False):
    """What KGC deals to a role: the public key, the role's secrets, and CSP's key for attestations: CSP has the private one."""

    n: int
    h_s: int
    secrets: tuple[int, ...]
    csp_key: bytes

    def __repr__(self) -> str:
        return "PaperBundle(secret)"


@dataclass(frozen=True)
class _Widths:
    """What follows from a task's bounds."""

    settings: TaskSettings
    parameters: int

    @cached_property
    def sigma(self) -> int:
        return self.settings.mask_bits or _SIGMA

    @cached_property
    def budget(self) -> WidthBudget:
        s = self.settings
        return WidthBudget(s.key_bits, self.parameters, s.most_in_round, s.max_samples, s.clip, s.decimals, s.rounds)

    @cached_property
    def encoding(self) -> FixedPoint:
        return FixedPoint(self.settings.decimals, self.settings.clip, "floor")

    @cached_property
    def average_kappa(self) -> int:
        """Bits of both operands of the averaging SDIV: sums of delta*w and of delta, both at scale 10^L."""
        return max(
            bits(self.budget.sum_bound), bits(self.settings.most_in_round * self.settings.max_samples * self.scale)
        )

    @cached_property
    def scale(self) -> int:
        return self.encoding.scale

    @cached_property
    def upload_length(self) -> int:
        """Ciphertexts of an upload: [[delta*w]], [[w]] where there are rewards, [[delta]]."""
        return self.parameters * (1 if self.settings.lanes == 0 else 2) + 1

    @cached_property
    def money(self) -> Units:
        return Units.of(self.settings, _LARGEST_PAYMENT)

    def average(self, values: list[int]) -> Average:
        return Average(np.array(values, dtype=np.float64) / self.scale, None)

    def rewards(self) -> PaperRewardWidths:
        if self.settings.lanes == 0:
            raise RewardsOff("the task was made with lanes=0: participants upload nothing to compute rewards from")
        return PaperRewardWidths(
            self.budget, self.settings.floor_units, self.money.of_millionths(_LARGEST_PAYMENT), self.sigma
        )


class PaperProfile(KeyedProfile):
    """Deals two splits, (lambda_c, lambda_sc) to CSP and SP, (lambda_p, lambda_sp) to all participants and SP, and sk to the
    requester."""

    name = "paper"

    def explain(self, settings: TaskSettings, parameters: int) -> str:
        count = _Widths(settings, parameters).upload_length
        return f"{count} ciphertexts an upload, as printed: it leaks; `crowdfl audit` shows what, and to whom"

    def claim_bytes(self, settings: TaskSettings, rounds: int) -> int:
        return claim_bytes(rounds, -(-settings.key_bits // 8))

    def claims_bundle(self, bundle: bytes) -> bytes:
        """Without the share, and so without claims.

        The printed CSP keeps no rounds, and compares no claim without SP's half: it keeps its share for claims until
        SP says that there are no more, or until their last day."""
        return replace(PaperBundle.from_bytes(bundle, Limits.plain()), secrets=(0,)).to_bytes()

    def attesting_key(self, bundle: bytes) -> SigningKey:
        return SigningKey(PaperBundle.from_bytes(bundle, Limits.plain()).csp_key)

    def close_steps(self, spec: TaskSpec, records: Look) -> Collection[int]:
        """What is kept of steps is nothing."""
        del spec, records
        return KeptDifference.kind, claims.KeptClaim.kind

    def check(self, settings: TaskSettings, parameters: int) -> None:
        self.check_settings(settings)
        if settings.total != "shown":
            raise SettingsError("the profile paper has no setting total: its readers never see one")
        widths = _Widths(settings, parameters)
        kappas = [widths.average_kappa]
        if settings.lanes != 0:
            rewards = widths.rewards()
            kappas += [rewards.weight_kappa, rewards.reward_kappa]
            _check_products(settings.key_bits, rewards)
        if bits(widths.encoding.bound) >= widths.sigma - 1:
            raise WidthBudgetExceeded(
                f"averages of {bits(widths.encoding.bound)} bits are not covered by masks of {widths.sigma} bits: "
                "lower clip or decimals"
            )
        for kappa in kappas:
            PaperSdivSp.check(settings.key_bits, kappa, widths.sigma, settings.decimals)

    def deal(self, spec: TaskSpec, *, insecure_test_key: bool) -> Dealing:
        self.check(spec.settings, spec.parameters)
        keys = pctd.keygen(spec.settings.key_bits // 2, insecure_test_key=insecure_test_key)
        lambda_c, lambda_sc = keys.private.split_as_printed()
        lambda_p, lambda_sp = keys.private.split_as_printed()
        signing = SigningKey.fresh()

        def bundle(*secrets: int, csp_key: bytes = signing.public) -> bytes:
            own = tuple(int(x) for x in secrets)
            return PaperBundle(int(keys.public.n), int(keys.public.h_s), own, csp_key).to_bytes()

        return Dealing(
            fingerprint=keys.public.fingerprint,
            sp=bundle(lambda_sc.exponent, lambda_sp.exponent),
            csp=bundle(lambda_c.exponent, csp_key=signing.private),
            requester=bundle(keys.private.lambda_, keys.private.u),
            participant=bundle(lambda_p.exponent),
            csp_key=signing.public,
        )

    def sp(self, spec: TaskSpec, bundle: bytes, tools: Tools) -> "PaperSp":
        public, (lambda_sc, lambda_sp), csp_key = _open_bundle(bundle, 2, tools)
        party = tools.keyed_party("SP", public, KeyShare(public, lambda_sc))
        return PaperSp(party, spec.task(public), KeyShare(public, lambda_sp), csp_key)

    def csp(self, spec: TaskSpec, bundle: bytes, tools: Tools) -> "PaperCsp":
        public, (lambda_c,), signing = _open_bundle(bundle, 1, tools)
        party = tools.keyed_party("CSP", public, KeyShare(public, lambda_c))
        return PaperCsp(party, spec.task(public), SigningKey(signing))

    def requester(self, spec: TaskSpec, bundle: bytes, tools: Tools) -> "PaperRequester":
        public, (lambda_, u), _ = _open_bundle(bundle, 2, tools)
        private = PrivateKey(public, lambda_, u)
        return PaperRequester(tools.keyed_party("requester", public), spec.task(public), private)

    def participant(self, spec: TaskSpec, bundle: bytes, keys: ParticipantKeys, tools: Tools) -> "PaperParticipant":
        public, (lambda_p,), csp_key = _open_bundle(bundle, 1, tools)
        party = tools.keyed_party("participant", public, KeyShare(public, lambda_p))
        return PaperParticipant(party, spec.task(public), keys, csp_key)


def _check_products(key_bits: int, rewards: PaperRewardWidths) -> None:
    """SMUL opens x' * y', twice as wide as its masks; it must stay below N/2."""
    for width in rewards.factors:
        needed = 2 * (width + rewards.sigma + 1) + 2
        if needed > key_bits:
            raise WidthBudgetExceeded(
                f"SMUL of factors of {width} bits needs a key of {needed} bits; this one has {key_bits}"
            )


def _open_bundle(bundle: bytes, count: int, tools: Tools) -> tuple[PublicKey, list[mpz], bytes]:
    own = PaperBundle.from_bytes(bundle, Limits.plain())
    if len(own.secrets) != count:
        raise InvalidKey(f"this bundle is of another role: {len(own.secrets)} keys where {count} belong")
    public = PublicKey(mpz(own.n), mpz(own.h_s), tools.insecure_test_key)
    return public, [mpz(x) for x in own.secrets], own.csp_key


class PaperParticipant(KeyedSide, PaidParticipant):
    """A phone of the paper: one parameter per ciphertext, a key share, decryption by PDec and TDec."""

    def __init__(self, party: KeyedParty, task: KeyedTask, keys: ParticipantKeys, csp_key: bytes) -> None:
        PaidParticipant.__init__(self, party, task, keys, csp_key)
        self.party, self.task = party, task
        self.clipped = 0
        self._widths = _Widths(task.settings, task.parameters)

    def upload_randomizers(self) -> int:
        return self._widths.upload_length

    def encrypt_update(self, weights: npt.NDArray[np.float64], samples: int, round_number: int) -> bytes:
        """[[delta*w]] = [[w]]^delta, [[delta]], and for rewards a second, unlinkable [[w]]."""
        widths, party = self._widths, self.party
        samples = whole_samples(samples)
        if not 0 <= samples <= self.task.settings.max_samples:
            raise SlotOverflow(f"{samples} samples; the task allows 0..{self.task.settings.max_samples}")
        encoded = widths.encoding.encode(weights)
        self.clipped = encoded.clipped
        values = signed_residues(encoded.values, party.public)
        parts = [party.scale(party.encrypt(values), samples)]
        if self.task.settings.lanes != 0:
            parts.append(party.encrypt(values))
        parts.append(party.encrypt([samples * widths.scale]))
        return party.send(CipherVector.concat(parts))

    def read(self, publication: bytes, round_number: int) -> Average:
        """Alg. 3, line 12: PDec with lambda_p, TDec."""
        message = PaperPublication.from_bytes(publication, self.party.limits(self.task.parameters))
        opened = self.party.finish(message.average, message.average_1)
        return self._widths.average([self.task.public.signed(v) for v in to_ints(opened)])

    def open_reward(self, envelope: bytes, round_number: int) -> int:
        """Section 6: PDec with lambda_p, TDec. What no round can pay is in no claim."""
        message, money = _parse_reward(envelope, self.party), self._widths.money
        opened = int(self.task.public.signed(to_ints(self.party.finish(message.mu, message.mu_1))[0]))
        if not money.is_payable(opened):
            raise RewardOutOfRange(Reason.OUT_OF_RANGE.words)
        amount = money.millionths(opened)
        self._signed[round_number] = digest(message.mu)
        self._earned(round_number, claims.RewardEnvelope(opened, b"", b""), amount)
        return amount

    def _reward_form(self) -> claims.RewardForm:
        return reward_form(self.task)


def _digest_of(uploads: Mapping[str, bytes]) -> bytes:
    """In no order of their coming."""
    return hashlib.sha256(b"".join(who.encode().ljust(64) + name for who, name in sorted(uploads.items()))).digest()


def reward_form(task: KeyedTask) -> claims.RewardForm:
    """`RewardsOff` in a task without rewards."""
    widths, public = _Widths(task.settings, task.parameters), task.public
    _ = widths.rewards()
    return claims.RewardForm(int(public.n), public.plaintext_bytes, 0, widths.money.largest)


def _parse_reward(envelope: bytes, party: KeyedParty) -> PaperReward:
    found = PaperReward.from_bytes(envelope, party.limits(1))
    if not len(found.mu) == len(found.mu_1) == 1:
        raise FormatError(f"a reward is one ciphertext and one half, not {len(found.mu)} and {len(found.mu_1)}")
    return found


class PaperRequester(KeyedSide):
    """The requester of the paper owns the whole private key."""

    def __init__(self, party: KeyedParty, task: KeyedTask, private: PrivateKey) -> None:
        self.party, self.task, self.private = party, task, private

    def read(self, publication: bytes, round_number: int) -> Average:
        message = PaperPublication.from_bytes(publication, self.party.limits(self.task.parameters))
        self.party.costs.count("Dec", len(message.average))
        values = [
            self.private.decrypt(message.average[i], constant_time=self.party.constant_time)
            for i in range(len(message.average))
        ]
        return _Widths(self.task.settings, self.task.parameters).average(values)


class PaperSp(PaidSp, BaseSp):
    """The sensing platform of the paper."""

    stages: Sequence[Stage] = ("average", "reward")
    answers: Mapping[type[Message], type[Message]] = {SdivRequest: SdivReply, SmulRequest: SmulReply}
    record = (
        SpRecord()
    )  # the paper masks with fresh numbers at every try: nothing is kept, and that is one of its leaks

    def __init__(self, party: KeyedParty, task: KeyedTask, lambda_sp: KeyShare, csp_key: bytes) -> None:
        self.delivery, self._lambda_sp = replace(party, share=lambda_sp), lambda_sp
        self._widths = _Widths(task.settings, task.parameters)
        PaidSp.__init__(self, task, csp_key, task.public.plaintext_bytes)
        BaseSp.__init__(self, party, task, self._widths.upload_length, summed=task.parameters + 1)

    def _longest_reply(self, kind: int) -> int:
        return steps.longest_reply(self.task, kind)

    def open_round(self, round_number: int) -> None:
        super().open_round(round_number)
        self._average: CipherVector | None = None

    def add_all(self, uploads: Mapping[str, bytes], *, validated: bool = False) -> None:
        """Alg. 3, lines 3-6, one upload after the other."""
        for who, upload in uploads.items():
            name = upload_digest(upload)
            if not self._is_counted(who, name):
                vector = self._parse(upload, validated=validated)
                self._products.add(
                    CipherVector.concat([vector.part(0, self.task.parameters), vector.part(-1, len(vector))])
                )
                self._uploads[who], self._vectors[who] = name, vector
                self._average = None  # section 5.2: a late upload is averaged in

    def publish(self, *, final: bool) -> Exchange:
        """Alg. 3, lines 7-11: SDIV, then PDec with lambda_sp."""
        self.check()
        if self._average is None:
            yield from self._divide()
        self._publication = self._published(self._divided(), final=final)

    def published(self, average: CipherVector) -> bytes:
        """An average that is there, for the participants."""
        return self._published(average).to_bytes()

    def _published(self, average: CipherVector, *, final: bool = False) -> PaperPublication:
        """Lines 8-11."""
        return PaperPublication(average, self.delivery.partial_decrypt(average.part(0, 0) if final else average))

    def hold(self) -> Exchange:
        """Alg. 3, line 7, without lines 8-11."""
        if self._average is None:
            yield from self._divide()

    def held(self) -> bytes:
        return PaperHeld(self._averaged_digest(), self._divided()).to_bytes()

    def take_held(self, held: bytes) -> bool:
        message = PaperHeld.from_bytes(held, self.party.limits(self.task.parameters))
        if message.uploads != self._averaged_digest() or len(message.average) != self.task.parameters:
            return False
        self._average = message.average
        return True

    def holds(self, held: bytes, uploads: Mapping[str, str]) -> bool:
        message = PaperHeld.from_bytes(held, self.party.limits(self.task.parameters))
        return message.uploads == _digest_of({who: bytes.fromhex(name) for who, name in uploads.items()})

    def _averaged_digest(self) -> bytes:
        return _digest_of(self._uploads)

    def _divide(self) -> Exchange:
        p, widths = self.task.parameters, self._widths
        sums = self._products.result()
        divisors = CipherVector.concat([sums.part(p)] * p)
        sdiv = PaperSdivSp(
            self.party, kappa=widths.average_kappa, sigma=widths.sigma, decimals=self.task.settings.decimals
        )
        self._average = yield from sdiv.run(sums.part(0, p), divisors, Coins.fresh())

    def _divided(self) -> CipherVector:
        """It lives in memory alone, as the paper's does."""
        if self._average is None:
            raise FormatError("nothing is averaged yet")
        return self._average

    def reward(self, payment: int) -> Exchange:
        """Alg. 4, and PDec of each reward with lambda_sp."""
        if not 0 < payment <= _LARGEST_PAYMENT:
            raise SettingsError(f"a round pays 1 to {_LARGEST_PAYMENT} millionths, not {payment}")
        if self._average is None:
            yield from self._divide()
        ids, p = sorted(self._vectors), self.task.parameters
        models = [self._vectors[who].part(p, 2 * p) for who in ids]
        samples = CipherVector.concat([self._vectors[who].part(2 * p) for who in ids])
        mu = yield from self.reward_side().run(models, samples, self._divided(), self.units(payment), Coins.fresh())
        self._envelopes = self._delivered(ids, mu)

    def reward_side(self) -> PaperRewardSp:
        """SP's side of Alg. 4 in this task."""
        return PaperRewardSp(self.party, self._widths.rewards())

    def units(self, payment: int) -> int:
        """Millionths at scale 10^L."""
        return self._widths.money.of_millionths(payment)

    def delivered(self, ids: Sequence[str], mu: CipherVector) -> dict[str, bytes]:
        """Everyone's reward as it travels."""
        return {who: message.to_bytes() for who, message in self._delivered(ids, mu).items()}

    def _delivered(self, ids: Sequence[str], mu: CipherVector) -> dict[str, Message]:
        each = {who: mu.part(i, i + 1) for i, who in enumerate(ids)}
        return {who: PaperReward(own, self.delivery.partial_decrypt(own)) for who, own in each.items()}

    def paying(self, identity: Identity) -> "PaperSp":
        """One that knows this claimant and nobody else."""
        alone = PaperSp(self.party, self.task, self._lambda_sp, self.csp_key)
        alone.enrol(identity)
        return alone

    def claim_request(self, claim: bytes, served: Callable[[], Mapping[int, bytes]]) -> bytes:
        return self.shown_claim(claim, served())

    def shown_claim(self, claim: bytes, envelopes: Mapping[int, bytes]) -> bytes:
        """With the rewards themselves, as their owner was served them."""
        opened = self.check_claim(claim)
        served = {number: _parse_reward(one, self.party).mu for number, one in envelopes.items()}
        for number, signed in zip(opened.rounds, opened.shown, strict=True):
            if number not in served or digest(served[number]) != signed:  # SP decrypts nothing but what it has served
                raise MasksDoNotFit(f"{opened.participant} was served no such reward of round {number}")
        return self.party.costs.sent(
            open_claim(self.party, opened, claim, [served[number] for number in opened.rounds])
        )


class PaperCsp(KeyedSide):
    """The computation server of the paper: answers by the kind of the request."""

    def __init__(self, party: KeyedParty, task: KeyedTask, signing: SigningKey) -> None:
        self.party = party
        self.task = task
        self.signing = signing
        self.roster = Roster()
        count = steps.most_numbers(task)
        self._answers = {
            SdivRequest.kind: PaperSdivCsp(party, decimals=task.settings.decimals, max_count=count).answer,
            SmulRequest.kind: PaperSmulCsp(party, max_count=count).answer,
        }

    @property
    def task_key(self) -> SigningKey:
        return self.signing

    def enrol(self, identity: Identity) -> None:
        self.roster.add(identity)

    def answer(self, records: Look, request: bytes) -> Outcome:
        """The paper's CSP keeps no records of rounds."""
        if claims.is_claim(request, claims.OpenedClaim):
            return self._claims().answer(records, request)
        kind = Message.kind_of(request)
        if kind not in self._answers:
            raise FormatError(f"CSP does not answer messages of kind {kind} in this task")
        return self._answers[kind](request)

    def _claims(self) -> PaperClaimsCsp:
        form, money = reward_form(self.task), Units.of(self.task.settings, _LARGEST_PAYMENT)
        return PaperClaimsCsp(self.task, form, self.signing, self.roster.signing, self.task, self.party, money)
