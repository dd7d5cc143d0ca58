"""Single SDIVs and SMULs of both profiles, in a batch on one core."""

from dataclasses import dataclass
from typing import Any

from crowdfl.crypto import pctd
from crowdfl.crypto.budget import bits
from crowdfl.crypto.compute import Threads
from crowdfl.crypto.randomness import Coins
from crowdfl.crypto.vector import CipherVector
from crowdfl.errors import ProtocolError
from crowdfl.lab.bench.protocols.measure import ProtocolSettings
from crowdfl.lab.bench.workload import SERVERS, SIGMA
from crowdfl.lab.timing import Timing, turns
from crowdfl.protocols.hardened.prirwd import RewardWidths
from crowdfl.protocols.party import Party
from crowdfl.protocols.sdiv import HardenedSdivCsp, HardenedSdivSp, PaperSdivCsp, PaperSdivSp
from crowdfl.protocols.smul import PaperSmulCsp, PaperSmulSp, Polynomial, PolynomialsCsp, PolynomialsSp
from crowdfl.settings import MILLION

__all__ = ["measure_operations"]

_PAPER_SIGMA = 80
_LARGEST_PAYMENT = 1_000_000 * MILLION
_FACTOR_BITS = 40  # of the factors whose SMUL is timed


def measure_operations(settings: ProtocolSettings) -> dict[tuple[str, str], Timing]:
    """Seconds of batches by operation and profile, SP's and CSP's work together; in turn, every result checked once."""
    pair = _Pair.make(settings)
    operations = {
        ("SDIV", "paper"): pair.paper_sdiv,
        ("SDIV", "hardened"): pair.hardened_sdiv,
        ("SMUL", "paper"): pair.paper_smul,
        ("SMUL", "hardened"): pair.hardened_smul,
    }
    for (name, profile), run in operations.items():
        pair.check(name, profile, run())  # warms the table up as well
    return turns(operations, settings.operation_turns)


@dataclass(frozen=True)
class _Pair:
    """SP and CSP with a share each, on one core, and operands for both profiles."""

    settings: ProtocolSettings
    sp: Party
    csp: Party
    private: pctd.PrivateKey
    x: tuple[int, ...]
    y: tuple[int, ...]
    big_x: CipherVector
    big_y: CipherVector

    @classmethod
    def make(cls, settings: ProtocolSettings) -> "_Pair":
        keys = pctd.keygen(settings.prime_bits, insecure_test_key=settings.insecure_test_key)
        one_core = Threads(1)
        shares = keys.private.split()
        sp, csp = (Party(name, keys.public, share, one_core) for name, share in zip(SERVERS, shares, strict=True))
        y = tuple(int(Coins.fresh().below(1 << 31)) + (1 << 31) for _ in range(settings.operations))
        x = tuple(7 * divisor + 5 for divisor in y)
        return cls(settings, sp, csp, keys.private, x, y, sp.encrypt(x), sp.encrypt(y))

    def paper_sdiv(self) -> CipherVector:
        """Alg. 1, kappa as in the averaging of a task."""
        task = self.settings.task("paper")
        kappa = bits(task.max_participants * task.max_samples * round(task.clip) * 10**task.decimals)
        sp = PaperSdivSp(self.sp, kappa=kappa, sigma=_PAPER_SIGMA, decimals=task.decimals)
        return self._run(sp, PaperSdivCsp(self.csp, decimals=task.decimals, max_count=len(self.x)))

    def hardened_sdiv(self) -> CipherVector:
        """As PriRwd divides for its weights."""
        widths = RewardWidths(self.settings.budget, self.settings.task().epsilon_units, _LARGEST_PAYMENT)
        return self._run(HardenedSdivSp(self.sp, widths.weights), HardenedSdivCsp(self.csp, max_count=len(self.x)))

    def paper_smul(self) -> CipherVector:
        """Alg. 2."""
        sp = PaperSmulSp(self.sp, mask_bits=_FACTOR_BITS + _PAPER_SIGMA)
        return self._run(sp, PaperSmulCsp(self.csp, max_count=len(self.x)))

    def hardened_smul(self) -> CipherVector:
        """The same products as polynomials in packed operands."""
        count = len(self.x)
        sp = PolynomialsSp(self.sp, sigma=SIGMA, masks_in_task=2 * count)
        csp = PolynomialsCsp(self.csp, max_count=2 * count)
        operands = CipherVector.concat([self.big_x, self.big_y])
        products: list[Polynomial] = [{(i, count + i): 1} for i in range(count)]
        pending, request = sp.begin(operands, [_FACTOR_BITS] * (2 * count), products, Coins.fresh())
        return sp.finish(pending, csp.answer(request))

    def _run(self, sp: Any, csp: Any) -> CipherVector:  # noqa: ANN401 -- both halves of one of three protocols
        pending, request = sp.begin(self.big_x, self.big_y, Coins.fresh())
        result: CipherVector = sp.finish(pending, csp.answer(request))
        return result

    def check(self, name: str, profile: str, result: CipherVector) -> None:
        """Raise unless the result decrypts to what it should; a division of `hardened` may be one above."""
        scale = 10 ** self.settings.task("paper").decimals if profile == "paper" else 1
        for i, (x, y) in enumerate(zip(self.x, self.y, strict=True)):
            expected, slack = (x * y, 0) if name == "SMUL" else (x * scale // y, int(profile == "hardened"))
            if not 0 <= self.private.decrypt(result[i]) - expected <= slack:
                raise ProtocolError(f"{name} of {profile} gave a wrong result")
