"""An honest round in one process, kept with everything that each attacker could have seen of it.

Four participants, one of them late. In `paper` the average is published, the late upload arrives and it is published again, as
section 5.2 describes; in `hardened` the late upload extends the products and the opening runs once.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from crowdfl.crypto.packing import Packing
from crowdfl.crypto.pctd import KeyShare, PrivateKey, PublicKey
from crowdfl.crypto.sealing import AudienceKey, ReaderKey
from crowdfl.errors import SeedReused
from crowdfl.local import LocalFederation
from crowdfl.protocols.hardened.profile import HardenedParticipant, HardenedSp
from crowdfl.protocols.paper.profile import PaperRequester, PaperSp
from crowdfl.protocols.party import View
from crowdfl.protocols.smul import PolynomialsSp
from crowdfl.settings import TaskSettings, to_millionths

__all__ = ["Floats", "Scene", "play"]

Floats = npt.NDArray[np.float64]
_SAMPLES = {"p1": 49, "p2": 31, "p3": 20, "p4": 83}
_LATE = "p4"
_BUDGET = "36.00"
_BOUNDS: dict[str, Any] = {"max_participants": 6, "max_samples": 100, "clip": 4.0, "lanes": None, "rounds": 1}


@dataclass(frozen=True, eq=False)
class Scene:
    """The truth, to score attacks with, and below it what attackers hold."""

    profile: str
    settings: TaskSettings
    parameters: int
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
    requester_key: PrivateKey | None = field(repr=False)
    phone_reader: ReaderKey | None = field(repr=False)
    audiences: tuple[AudienceKey, ...] = field(repr=False)
    packing: Packing | None = field(repr=False)
    order: npt.NDArray[np.int64] = field(repr=False)  # public
    signs: npt.NDArray[np.int64] = field(repr=False)  # public
    operand_widths: tuple[int, ...] = ()  # public: of SMUL's operands, and what masks add to them
    slack: int = 0
    refusal: str = ""  # what SP said to a second opening

    @property
    def late(self) -> str:
        """Who came late."""
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
        pairs = []
        for x, y in zip(self.csp.of("SDIV x'"), self.csp.of("SDIV y'"), strict=True):
            divisors = list(y) if len(y) == len(x) else list(y) * len(x)
            pairs.append([(int(a), int(b)) for a, b in zip(x, divisors, strict=True)])
        return pairs


def play(profile: str, *, key_bits: int, parameters: int, seed: int = 7) -> Scene:
    """Run the round."""
    rng = np.random.default_rng(seed)
    weights = {who: np.round(rng.uniform(-0.45, 0.45, parameters), 6) for who in _SAMPLES}
    fed = LocalFederation(profile=profile, key_bits=key_bits, insecure_test_key=key_bits < 2048, **_BOUNDS)
    fed._deal(parameters)
    fed._start_round()
    uploads = {who: fed._participant(who).encrypt_update(weights[who], _SAMPLES[who]) for who in _SAMPLES}
    average = _publish(fed, uploads)
    fed._exchange(fed.sp.reward(to_millionths(_BUDGET)))
    envelopes = dict(fed.sp.envelopes())
    rewards = {who: fed._people[who].open_reward(envelope, 1) / 1e6 for who, envelope in envelopes.items()}
    return Scene(
        profile=profile,
        settings=fed.settings,
        parameters=parameters,
        weights=weights,
        samples=dict(_SAMPLES),
        rewards=rewards,
        budget=float(_BUDGET),
        context=_context(fed),
        public=fed.sp.party.public,
        csp=fed.csp.party.view,
        uploads=uploads,
        envelopes=envelopes,
        average=average,
        refusal=_open_again(fed, weights[_LATE]),
        **_belongings(fed, parameters),
    )


def _context(fed: LocalFederation) -> bytes:
    return fed.dealer.task.context(1) if fed.dealer else b""


def _publish(fed: LocalFederation, uploads: dict[str, bytes]) -> Floats:
    """All but the late one, then the late one; who may publish twice does."""
    for who, upload in uploads.items():
        if who == _LATE and isinstance(fed.sp, PaperSp):
            fed._exchange(fed.sp.publish(final=False))
        fed.sp.add(who, upload)
    fed._exchange(fed.sp.publish(final=False))
    return fed._people[_LATE].read(fed.sp.publication(), 1).weights


def _open_again(fed: LocalFederation, weights: Floats) -> str:
    """One more upload after the end, and an opening of the new sum: `hardened` must refuse, CSP must see nothing."""
    if isinstance(fed.sp, PaperSp):
        return ""
    seen = len(fed.csp.party.view.entries)
    fed.sp.add("p5", fed._participant("p5").encrypt_update(weights, 1))
    try:
        fed._exchange(fed.sp.publish(final=False))
    except SeedReused as refusal:
        return str(refusal) if len(fed.csp.party.view.entries) == seen else ""
    return ""


def _belongings(fed: LocalFederation, parameters: int) -> dict[str, Any]:
    """What SP, a phone and the requester hold, by profile."""
    phone = fed._people["p2"]
    if isinstance(fed.sp, PaperSp):
        requester = cast(PaperRequester, fed.requester)
        return {
            "sp_shares": _held(fed.sp.party.share, fed.sp.delivery.share),
            "csp_share": fed.csp.party.share,
            "phone_share": phone.party.share,
            "requester_key": requester.private,
            "phone_reader": None,
            "audiences": (),
            "packing": None,
            "order": np.arange(parameters),
            "signs": np.ones(parameters, dtype=np.int64),
        }
    sp, reader = cast(HardenedSp, fed.sp), cast(HardenedParticipant, phone)
    widths = sp._shape.widths()
    requester_audience = cast(HardenedParticipant, fed.requester).audience
    return {
        "sp_shares": _held(sp.party.share),
        "csp_share": fed.csp.party.share,
        "phone_share": phone.party.share,
        "requester_key": None,
        "phone_reader": reader.reader,
        "audiences": (reader.audience, requester_audience),
        "packing": sp.codec.packing,
        "order": sp.codec.order,
        "signs": sp.codec.signs,
        "operand_widths": tuple(widths.operands(len(_SAMPLES))),
        "slack": PolynomialsSp(sp.party, sigma=widths.budget.sigma, masks_in_task=widths.masks_in_task).slack,
    }


def _held(*shares: KeyShare | None) -> Sequence[KeyShare]:
    return tuple(share for share in shares if share is not None)
