"""What the sides of every profile that pays claims have alike: who takes part, and how rewards are claimed."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from crowdfl.errors import AlreadyCounted, KeyMismatch
from crowdfl.protocols import claims
from crowdfl.protocols.claims import Attested, Beside, Claim, ClaimsSp, RewardEnvelope, RewardForm, ShownClaim
from crowdfl.protocols.messages import Limits
from crowdfl.protocols.party import Party
from crowdfl.protocols.profile import Identity, ParticipantKeys, TaskSpec


@dataclass
class Roster:
    """The public keys of the participants that KGC has certified."""

    signing: dict[str, bytes] = field(default_factory=dict)
    reading: dict[str, bytes] = field(default_factory=dict)
    places: dict[str, str] = field(default_factory=dict)

    def add(self, identity: Identity) -> None:
        """One more, or the same again; another key under a known name is refused."""
        known = (self.signing.get(identity.who, identity.signing), self.reading.get(identity.who, identity.reading))
        if known != (identity.signing, identity.reading):
            raise KeyMismatch(f"{identity.who} is enrolled with other keys")
        self.signing[identity.who], self.reading[identity.who] = identity.signing, identity.reading
        self.places[identity.who] = identity.place or identity.who

    def require_apart(self, names: Iterable[str]) -> None:
        """Of these, who are all that a round has heard of, no two are devices of one person: it would count twice."""
        seen = dict[str, str]()
        for who in names:
            other = seen.setdefault(self.places.get(who, who), who)
            if other != who:
                raise AlreadyCounted(f"{who} is another device of {other}, who is in this round already")


class PaidSp:
    """SP: knows the participants, pays claims."""

    def __init__(self, spec: TaskSpec, csp_key: bytes, reward: int) -> None:
        """`reward`: the bytes of one."""
        self.roster = Roster()
        self._spec, self._claims = spec, ClaimsSp(spec, csp_key, self.roster.signing, reward)

    def enrol(self, identity: Identity) -> None:
        self.roster.add(identity)

    @property
    def csp_key(self) -> bytes:
        return self._claims.csp_key

    def claimant(self, claim: bytes) -> str:
        return self._claims.read(claim).participant

    def paying(self, identity: Identity) -> "PaidSp":
        """One that knows this claimant and nobody else."""
        alone = PaidSp(self._spec, self._claims.csp_key, self._claims.reward)
        alone.enrol(identity)
        return alone

    def claim_request(self, claim: bytes, served: Callable[[], Mapping[int, bytes]]) -> bytes:
        """CSP knows by itself what was earned."""
        del served
        return claim

    def shown_claim(self, claim: bytes, envelopes: Mapping[int, bytes]) -> bytes:
        """With what CSP has signed of the claimed rounds, by what their owner was served: for a CSP that has lost its own."""
        served = {number: RewardEnvelope.from_bytes(one, Limits.plain(len(one))) for number, one in envelopes.items()}
        rounds = self._claims.read(claim).rounds
        records = tuple(served[number].sealed if number in served else b"" for number in rounds)
        return ShownClaim(claim, records).to_bytes()

    def check_claim(self, claim: bytes) -> Claim:
        return self._claims.check(claim)

    def attested(self, claim: bytes, attestation: bytes) -> Attested:
        return self._claims.attested(claim, attestation)


class PaidParticipant:
    """A phone: opens its rewards and claims them."""

    def __init__(self, party: Party, spec: TaskSpec, keys: ParticipantKeys, csp_key: bytes) -> None:
        self._party = party
        self.who = keys.who
        self.signing = keys.signing
        self.reader = keys.reader
        self._spec, self._csp_key = spec, csp_key
        self._envelopes: dict[int, RewardEnvelope] = {}
        self._amounts: dict[int, int] = {}
        self._signed: dict[int, bytes] = {}  # by CSP, of rewards that are hidden

    @property
    def csp_key(self) -> bytes:
        return self._csp_key

    def _reward_form(self) -> RewardForm:
        """`RewardsOff` in a task without rewards."""
        raise NotImplementedError

    def open_reward(self, envelope: bytes, round_number: int) -> int:
        """Millionths; one outside the round's budget is refused, and in no claim."""
        form, context = self._reward_form(), self._spec.context(round_number)
        message = RewardEnvelope.from_bytes(envelope, Limits.plain())
        opened = claims.open_reward(message, self.reader, self._csp_key, context, self.who, form)
        amount = form.payable(opened, form.largest)
        self._signed[round_number] = self.reader.open(message.sealed, claims.reward_context(context, self.who))
        self._earned(round_number, message, amount)
        return amount

    def _earned(self, round_number: int, envelope: RewardEnvelope, amount: int) -> None:
        self._envelopes[round_number], self._amounts[round_number] = envelope, amount

    def claim(self, beside: Beside | None = None) -> bytes:
        _ = self._reward_form()
        earned = self._amounts, self._envelopes, self._signed
        return self._party.send(claims.make_claim(self._spec.name, self.who, *earned, self.signing, beside))
