"""The profile `shares`: additive shares between two servers, and no public-key arithmetic at all."""

from collections.abc import Mapping

from crowdfl.crypto.sealing import AudienceKey, ReaderKey, SigningKey
from crowdfl.errors import SettingsError
from crowdfl.protocols import claims
from crowdfl.protocols.messages import Limits
from crowdfl.protocols.profile import Dealing, ParticipantKeys, TaskSpec, Tools
from crowdfl.protocols.shares.chain import ROUND_BYTES
from crowdfl.protocols.shares.dealing.keys import SharesCspBundle, SharesReaderBundle, SharesSpBundle, deal_keys
from crowdfl.protocols.shares.dealing.script import file_bytes, files
from crowdfl.protocols.shares.participant import SharesParticipant, SharesRequester
from crowdfl.protocols.shares.round.average import PARTICIPANTS, REQUESTER
from crowdfl.protocols.shares.round.csp import SharesCsp
from crowdfl.protocols.shares.round.csp_round import CspKeys
from crowdfl.protocols.shares.round.sp import SharesSp
from crowdfl.protocols.shares.shape import SAMPLES_BYTES, SharesShape
from crowdfl.settings import TaskSettings

_LARGEST_ROUND = 2 ** (8 * ROUND_BYTES) - 1


class SharesProfile:
    """Deals seeds and correlations; whoever holds them can decrypt nothing."""

    name = "shares"
    default_rule = "gate"
    chained = True

    def check(self, settings: TaskSettings, parameters: int) -> None:
        if settings.rounds > _LARGEST_ROUND:
            raise SettingsError(f"`rounds` is {settings.rounds}; this profile counts at most {_LARGEST_ROUND}")
        if (
            settings.rule == "none" and settings.budget is not None
        ):  # or it would be announced, escrowed, and never paid
            raise SettingsError('rule = "none" pays nobody: leave `budget` out, or name a rule that pays')
        SharesShape(TaskSpec("", settings, parameters)).require_computable()

    def explain(self, settings: TaskSettings, parameters: int) -> str:
        shape = SharesShape(TaskSpec("", settings, parameters))
        paid = shape.widths.is_checked and shape.payment
        lines = [shape.widths.explain(), *([shape.rule_widths.explain()] if paid else [])]
        return "\n".join(lines if shape.step is None else [*lines, shape.step.explain(float(settings.clip))])

    def claim_bytes(self, settings: TaskSettings, rounds: int) -> int:
        return claims.longest(8 * SAMPLES_BYTES, settings.rounds, rounds)

    def deal(self, spec: TaskSpec, *, insecure_test_key: bool) -> Dealing:
        """There is no key whose length could make it insecure."""
        del insecure_test_key
        self.check(spec.settings, spec.parameters)
        return deal_keys(SharesShape(spec).widths.k)

    def dealt_bytes(self, settings: TaskSettings, parameters: int) -> Mapping[str, int]:
        shape = SharesShape(TaskSpec("", settings, parameters))
        return file_bytes(shape)

    def dealt(self, spec: TaskSpec, source: bytes, role: str, number: int) -> bytes:
        return files(SharesShape(spec), source, number).get(role, b"")

    def sp(self, spec: TaskSpec, bundle: bytes, tools: Tools) -> SharesSp:
        own = SharesSpBundle.from_bytes(bundle, Limits.plain())
        return SharesSp(tools.party("SP"), SharesShape(spec), own.csp_signing, own.seed, own.fingerprint)

    def csp(self, spec: TaskSpec, bundle: bytes, tools: Tools) -> SharesCsp:
        own = SharesCspBundle.from_bytes(bundle, Limits.plain())
        audiences = {PARTICIPANTS: AudienceKey(own.participants), REQUESTER: AudienceKey(own.requester)}
        keys = CspKeys(SigningKey(own.signing), ReaderKey(own.sealing), audiences, own.seed)
        return SharesCsp(tools.party("CSP"), SharesShape(spec), keys, own.fingerprint)

    def requester(self, spec: TaskSpec, bundle: bytes, tools: Tools) -> SharesRequester:
        own = SharesReaderBundle.from_bytes(bundle, Limits.plain())
        return SharesRequester(tools.party("requester"), SharesShape(spec), own)

    def participant(self, spec: TaskSpec, bundle: bytes, keys: ParticipantKeys, tools: Tools) -> SharesParticipant:
        own = SharesReaderBundle.from_bytes(bundle, Limits.plain())
        return SharesParticipant(tools.party("participant"), SharesShape(spec), own, keys)
