"""`paper` beside `hardened`: one round of a small model by the same steps, and single SDIVs and SMULs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from crowdfl.crypto import pctd
from crowdfl.crypto.budget import bits
from crowdfl.crypto.compute import Backend, Threads
from crowdfl.crypto.randomizers import FreshRandomizers
from crowdfl.crypto.randomness import Coins
from crowdfl.crypto.vector import CipherVector
from crowdfl.errors import ProtocolError
from crowdfl.lab.bench.protocols.clock import RoleClock, exchange
from crowdfl.lab.bench.protocols.setting import SIGMA, ProtocolSetting, made_up_weights
from crowdfl.lab.timing import Timing, turns
from crowdfl.protocols.costs import Costs
from crowdfl.protocols.hardened.prirwd import RewardWidths
from crowdfl.protocols.party import Party
from crowdfl.protocols.profile import Tools, width_budget
from crowdfl.protocols.sdiv import HardenedSdivCsp, HardenedSdivSp, PaperSdivCsp, PaperSdivSp
from crowdfl.protocols.smul import PaperSmulCsp, PaperSmulSp, Polynomial, PolynomialsCsp, PolynomialsSp
from crowdfl.settings import MILLION

__all__ = ["OPERATIONS", "ROLES", "Operations", "RoundCost", "measure_operations", "measure_round"]

ROLES = ("SP", "CSP", "participant")
OPERATIONS = ("Enc", "PDec", "PAdd", "PMul", "SMUL", "SDIV", "randomizer")  # the last: also rerandomisations
_PAPER_SIGMA = 80
_LARGEST_PAYMENT = 1_000_000 * MILLION
_FACTOR_BITS = 40  # of the factors whose SMUL is timed


@dataclass(frozen=True)
class RoundCost:
    """One round, per role; the participant's figures are the mean over those who took part."""

    parameters: int
    seconds: dict[str, float]
    bytes_sent: dict[str, float]
    operations: dict[tuple[str, str], float]  # by role and operation


def measure_round(setting: ProtocolSetting, profile: str, backend: Backend) -> RoundCost:
    """Upload, average, publish, everyone reads, reward, everyone opens the own reward."""
    size, crowd = setting.small_parameters, setting.small_crowd
    tools = Tools(backend, insecure_test_key=setting.insecure_test_key)
    dealer = setting.dealer(profile, size, tools)
    FreshRandomizers(dealer.task.public).prepare()  # the table is made once per key, not once per round
    sp, csp = dealer.sp(), dealer.csp()
    people = {f"p{i}": dealer.participant(f"p{i}") for i in range(crowd)}
    sp.open_round(1)
    clock = RoleClock()
    for i, (who, side) in enumerate(people.items()):
        with clock.at("participant"):
            upload = side.encrypt_update(made_up_weights(size, i), 10 + i)
        with clock.at("SP"):
            sp.add(who, upload)
    clock.count(exchange(sp.publish(final=False), csp.answer))
    with clock.at("SP"):
        publication = sp.publication()
    with clock.at("participant"):
        for side in people.values():
            side.read(publication, 1)
    clock.count(exchange(sp.reward(crowd * MILLION), csp.answer))
    with clock.at("SP"):
        envelopes = sp.envelopes()
    with clock.at("participant"):
        for who, side in people.items():
            side.open_reward(envelopes[who], 1)
    costs = {"SP": [sp.party.costs], "CSP": [csp.party.costs], "participant": [s.party.costs for s in people.values()]}
    return _per_party(size, crowd, clock, costs)


def _per_party(size: int, crowd: int, clock: RoleClock, costs: dict[str, list[Costs]]) -> RoundCost:
    heads = {"SP": 1, "CSP": 1, "participant": crowd}
    return RoundCost(
        size,
        {role: clock.seconds[role] / heads[role] for role in ROLES},
        {role: sum(c.bytes_sent for c in costs[role]) / heads[role] for role in ROLES},
        {(role, name): sum(c.total(name) for c in costs[role]) / heads[role] for role in ROLES for name in OPERATIONS},
    )


@dataclass(frozen=True)
class Operations:
    """Seconds of one operation in a batch on one core, SP's and CSP's work together."""

    count: int
    sdiv: dict[str, Timing]
    smul: dict[str, Timing]


def measure_operations(setting: ProtocolSetting) -> Operations:
    """Batches of SDIVs and SMULs of both profiles, in turn, every result checked once."""
    pair = _Pair.make(setting)
    pair.check()
    variants: dict[str, Callable[[], object]] = {
        "paper SDIV": pair.paper_sdiv,
        "hardened SDIV": pair.hardened_sdiv,
        "paper SMUL": pair.paper_smul,
        "hardened SMUL": pair.hardened_smul,
    }
    seconds = turns(variants, setting.operation_turns)
    profiles = ("hardened", "paper")
    return Operations(
        setting.operations,
        {profile: seconds[f"{profile} SDIV"] for profile in profiles},
        {profile: seconds[f"{profile} SMUL"] for profile in profiles},
    )


@dataclass(frozen=True)
class _Pair:
    """SP and CSP with a share each, on one core, and operands for both profiles."""

    setting: ProtocolSetting
    sp: Party
    csp: Party
    private: pctd.PrivateKey
    x: tuple[int, ...]
    y: tuple[int, ...]
    big_x: CipherVector
    big_y: CipherVector

    @classmethod
    def make(cls, setting: ProtocolSetting) -> "_Pair":
        keys = pctd.keygen(setting.prime_bits, insecure_test_key=setting.insecure_test_key)
        one_core = Threads(1)
        shares = keys.private.split()
        sp, csp = (Party(name, keys.public, share, one_core) for name, share in zip(("SP", "CSP"), shares, strict=True))
        y = tuple(int(Coins.fresh().below(1 << 31)) + (1 << 31) for _ in range(setting.operations))
        x = tuple(7 * divisor + 5 for divisor in y)
        return cls(setting, sp, csp, keys.private, x, y, sp.encrypt(x), sp.encrypt(y))

    def paper_sdiv(self) -> CipherVector:
        """Alg. 1, kappa as in the averaging of a task."""
        task = self.setting.task("paper")
        kappa = bits(task.max_participants * task.max_samples * round(task.clip) * 10**task.decimals)
        sp = PaperSdivSp(self.sp, kappa=kappa, sigma=_PAPER_SIGMA, decimals=task.decimals)
        csp = PaperSdivCsp(self.csp, decimals=task.decimals, max_count=len(self.x))
        pending, request = sp.begin(self.big_x, self.big_y, Coins.fresh())
        return sp.finish(pending, csp.answer(request))

    def hardened_sdiv(self) -> CipherVector:
        """As PriRwd divides for its weights."""
        task = self.setting.task("hardened")
        budget = width_budget(task, self.setting.parameters, SIGMA)
        sp = HardenedSdivSp(self.sp, RewardWidths(budget, task.epsilon_units, _LARGEST_PAYMENT).weights)
        csp = HardenedSdivCsp(self.csp, max_count=len(self.x))
        pending, request = sp.begin(self.big_x, self.big_y, Coins.fresh())
        return sp.finish(pending, csp.answer(request))

    def paper_smul(self) -> CipherVector:
        """Alg. 2."""
        sp = PaperSmulSp(self.sp, mask_bits=_FACTOR_BITS + _PAPER_SIGMA)
        csp = PaperSmulCsp(self.csp, max_count=len(self.x))
        pending, request = sp.begin(self.big_x, self.big_y, Coins.fresh())
        return sp.finish(pending, csp.answer(request))

    def hardened_smul(self) -> CipherVector:
        """The same products as polynomials in packed operands."""
        count = len(self.x)
        sp = PolynomialsSp(self.sp, sigma=SIGMA, masks_in_task=2 * count)
        csp = PolynomialsCsp(self.csp, max_count=2 * count)
        operands = CipherVector.concat([self.big_x, self.big_y])
        products: list[Polynomial] = [{(i, count + i): 1} for i in range(count)]
        pending, request = sp.begin(operands, [_FACTOR_BITS] * (2 * count), products, Coins.fresh())
        return sp.finish(pending, csp.answer(request))

    def check(self) -> None:
        """Raise unless all four give what they should; warms the table up as well."""
        scale = 10 ** self.setting.task("paper").decimals
        floors = [x * scale // y for x, y in zip(self.x, self.y, strict=True)]
        products = [x * y for x, y in zip(self.x, self.y, strict=True)]
        quotients = [x // y for x, y in zip(self.x, self.y, strict=True)]
        self._expect("SDIV of paper", self.paper_sdiv(), floors)
        self._expect("SDIV of hardened", self.hardened_sdiv(), quotients, slack=1)
        self._expect("SMUL of paper", self.paper_smul(), products)
        self._expect("SMUL of hardened", self.hardened_smul(), products)

    def _expect(self, what: str, result: CipherVector, expected: Sequence[int], slack: int = 0) -> None:
        for i, value in enumerate(expected):
            if not 0 <= self.private.decrypt(result[i]) - value <= slack:
                raise ProtocolError(f"{what} gave a wrong result")
