"""An honest round in one process, kept with everything that each attacker could have seen of it.

Four participants, one of them late. In `paper` the average is published, the late upload arrives and it is published again, as
section 5.2 describes; in `hardened` the late upload extends the products and the opening runs once.
"""

from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np

from crowdfl.crypto import pctd
from crowdfl.crypto.compute import default_backend
from crowdfl.crypto.pctd import KeyShare, PrivateKey, PublicKey
from crowdfl.crypto.sealing import AudienceKey, ReaderKey
from crowdfl.errors import SeedReused
from crowdfl.lab.audit.finding import PAPER, Floats
from crowdfl.lab.parties import LocalParties
from crowdfl.protocols.exchange import Observer
from crowdfl.protocols.hardened.prifedavg import ModelCodec
from crowdfl.protocols.hardened.profile import HardenedParticipant, HardenedRequester, HardenedSp, reward_widths
from crowdfl.protocols.paper.profile import PaperRequester, PaperSp
from crowdfl.protocols.party import Party, View
from crowdfl.protocols.profile import TaskSpec, Tools
from crowdfl.protocols.smul import PolynomialsSp
from crowdfl.settings import TaskSettings, to_millionths

__all__ = ["Scene", "deal", "play", "servers"]

_SAMPLES = {"p1": 49, "p2": 31, "p3": 20, "p4": 83}
_LATE = "p4"
_BUDGET = "36.00"
_BOUNDS: dict[str, Any] = {"max_participants": 6, "max_samples": 100, "clip": 4.0, "lanes": None, "rounds": 1}


@dataclass(frozen=True, eq=False)
class Scene:
    """The truth, to score attacks with, and below it what attackers hold."""

    settings: TaskSettings
    weights: dict[str, Floats] = field(repr=False)
    samples: dict[str, int] = field(repr=False)
    rewards: dict[str, float] = field(repr=False)
    budget: float

    context: bytes
    public: PublicKey
    csp: View = field(repr=False)
    uploads: dict[str, bytes] = field(repr=False)
    envelopes: dict[str, bytes] = field(repr=False)
    average: Floats = field(repr=False)  # what every participant reads
    sp_shares: tuple[KeyShare, ...] = field(repr=False)
    csp_share: KeyShare | None = field(repr=False)
    phone_share: KeyShare | None = field(repr=False)
    requester_key: PrivateKey | None = field(default=None, repr=False)
    phone_reader: ReaderKey | None = field(default=None, repr=False)
    audiences: tuple[AudienceKey, ...] = field(default=(), repr=False)
    codec: ModelCodec | None = field(default=None, repr=False)  # public, as all below
    operand_widths: tuple[int, ...] = ()  # of SMUL's operands, and what masks add to them
    slack: int = 0
    refusal: str = ""  # what SP said to a second opening

    @property
    def profile(self) -> str:
        return self.settings.profile

    @property
    def parameters(self) -> int:
        return len(self.average)

    @property
    def late(self) -> str:
        return _LATE

    @property
    def total(self) -> int:
        """All samples averaged."""
        return sum(self.samples.values())

    @property
    def most(self) -> int:
        """The largest total that the task allows."""
        return self.settings.max_participants * self.settings.max_samples

    @property
    def distances(self) -> dict[str, float]:
        """d_i of Eq. 10, from the plaintexts."""
        mean = sum((n * self.weights[who] for who, n in self.samples.items()), np.zeros(self.parameters)) / self.total
        return {who: float(np.sum((w - mean) ** 2)) for who, w in self.weights.items()}

    def divisions(self) -> list[list[tuple[int, int]]]:
        """CSP's eyes: the pairs (x', y') that it opened, one list for every exchange of SDIV."""
        exchanges = []
        for x, y in zip(self.csp.of("SDIV x'"), self.csp.of("SDIV y'"), strict=True):
            divisors = list(y) if len(y) == len(x) else list(y) * len(x)
            exchanges.append([(int(a), int(b)) for a, b in zip(x, divisors, strict=True)])
        return exchanges


def servers(prime_bits: int, *, as_printed: bool) -> tuple[PrivateKey, Party, Party]:
    """A test key and the two servers between which it is split, for a protocol on its own."""
    private = pctd.keygen(prime_bits, insecure_test_key=True).private
    first, second = private.split_as_printed() if as_printed else private.split()
    return private, Party("SP", first.public, first), Party("CSP", second.public, second)


def deal(
    parameters: int,
    *,
    key_bits: int,
    observer: Observer | None = None,
    **settings: Any,  # noqa: ANN401 -- TaskSettings checks each by name
) -> LocalParties:
    """The parties of a task, each with a record of what it sees."""
    spec = TaskSpec("audit", TaskSettings.of(key_bits=key_bits, **settings), parameters)
    tools = Tools(default_backend(), insecure_test_key=key_bits < 2048, observer=observer or Observer())
    return LocalParties(spec, tools)


def play(profile: str, *, key_bits: int, parameters: int, seed: int = 7) -> Scene:
    """Run the round."""
    rng = np.random.default_rng(seed)
    weights = {who: np.round(rng.uniform(-0.45, 0.45, parameters), 6) for who in _SAMPLES}
    parties = deal(parameters, key_bits=key_bits, profile=profile, **_BOUNDS)
    uploads = parties.encrypt({who: (weights[who], samples) for who, samples in _SAMPLES.items()})
    round_ = parties.open(1)
    round_.collect({who: upload for who, upload in uploads.items() if who != _LATE})
    if profile == PAPER:
        round_.average()
    round_.collect({_LATE: uploads[_LATE]})
    average = parties.read(round_.average(), 1, [_LATE]).weights
    envelopes = dict(round_.reward(to_millionths(_BUDGET)))
    rewards = {who: millionths / 1e6 for who, millionths in parties.open_rewards(envelopes, 1).items()}
    return Scene(
        settings=parties.dealer.spec.settings,
        weights=weights,
        samples=dict(_SAMPLES),
        rewards=rewards,
        budget=float(_BUDGET),
        context=parties.dealer.task.context(1),
        public=parties.dealer.task.public,
        csp=parties.csp.party.view,
        uploads=uploads,
        envelopes=envelopes,
        average=average,
        csp_share=parties.csp.party.share,
        phone_share=parties.people["p2"].party.share,
        **(_held_in_paper(parties) if profile == PAPER else _held_in_hardened(parties)),
        refusal="" if profile == PAPER else _open_again(parties, weights[_LATE]),
    )


def _open_again(parties: LocalParties, weights: Floats) -> str:
    """One more upload after the end, and an opening of the new sum: `hardened` must refuse, CSP must see nothing."""
    round_, seen = parties.current(), len(parties.csp.party.view.entries)
    round_.collect(parties.encrypt({"p5": (weights, 1)}))
    try:
        round_.average()
    except SeedReused as refusal:
        return str(refusal) if len(parties.csp.party.view.entries) == seen else ""
    return ""


def _held_in_paper(parties: LocalParties) -> dict[str, Any]:
    sp, requester = cast(PaperSp, parties.sp), cast(PaperRequester, parties.requester)
    shares = (sp.party.share, sp.delivery.share)
    return {"sp_shares": tuple(share for share in shares if share), "requester_key": requester.private}


def _held_in_hardened(parties: LocalParties) -> dict[str, Any]:
    sp, phone = cast(HardenedSp, parties.sp), cast(HardenedParticipant, parties.people["p2"])
    widths = reward_widths(parties.dealer.spec.settings, parties.dealer.spec.parameters)
    return {
        "sp_shares": (sp.party.share,),
        "phone_reader": phone.reader,
        "audiences": (phone.audience, cast(HardenedRequester, parties.requester).audience),
        "codec": sp.codec,
        "operand_widths": tuple(widths.operands(len(_SAMPLES))),
        "slack": PolynomialsSp(sp.party, sigma=widths.budget.sigma, masks_in_task=widths.masks_in_task).slack,
    }
