"""`crowdfl bench gpu`: partial decryptions a second, and whole rounds of the profile `hardened`, on one GPU."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace

import numpy as np
import numpy.typing as npt
from crowdfl.lab.bench.gpu.batches import Batch, batches_grid, measure
from crowdfl.lab.bench.rows import Figure, Grid, Peer, Report, Row, Target
from crowdfl.lab.bench.timing import machine

from crowdfl.crypto import pctd
from crowdfl.crypto.compute import Backend
from crowdfl.crypto.kernels import PartialDecrypt
from crowdfl.crypto.randomizers import FreshRandomizers
from crowdfl.crypto.randomness import Coins
from crowdfl.errors import ProtocolError
from crowdfl.lab.bench.protocols.setting import made_up_weights
from crowdfl.lab.parties import LocalDealer
from crowdfl.learning.fedavg import fedavg
from crowdfl.learning.rewards import rewards as plain_rewards
from crowdfl.protocols.exchange import Silent, ask_directly, run_exchange
from crowdfl.protocols.profile import TaskSpec, Tools
from crowdfl.settings import MILLION, TaskSettings

__all__ = ["PAPER_GPU", "QUICK_GPU", "STAGES", "GpuSetting", "Round", "bench_gpu"]

STAGES = ("encrypt", "upload", "average", "deliver", "reward", "open rewards")
_STEPS = 10**-6  # of the weights: what an average may be off by


@dataclass(frozen=True)
class GpuSetting:
    """The sizes of a run. Targets are judged in the paper's setting alone."""

    parameters: int = 277_006
    participants: int = 36
    lanes: int = 4096
    prime_bits: int = pctd.SECURE_PRIME_BITS
    insecure_test_key: bool = False
    numbers: int = 1 << 17
    cpu_numbers: int = 16
    turns: int = 3
    batch: int = 1 << 16
    key_bits: tuple[int, ...] = (1024, 2048, 3072)

    @property
    def judged(self) -> bool:
        """Whether this is the setting that the targets speak of."""
        return self == PAPER_GPU

    @property
    def title(self) -> str:
        """One line for people."""
        key = f"|N| = {2 * self.prime_bits}{', INSECURE TEST KEY' if self.insecure_test_key else ''}"
        smoke = "" if self.judged else "; a sample: no target is judged"
        return f"{self.parameters:,} parameters, {self.participants} participants, {key}{smoke}"

    def to_dict(self) -> dict[str, int | bool]:
        """Plain values, ready for JSON."""
        return {name: value for name, value in asdict(self).items() if isinstance(value, int)}

    def dealer(self, lanes: int | None, backend: Backend) -> LocalDealer:
        """Deals a task of these sizes, the total shown; no lanes are exact distances."""
        settings = TaskSettings(max_participants=self.participants, lanes=lanes, key_bits=2 * self.prime_bits)
        tools = Tools(backend, insecure_test_key=self.insecure_test_key, observer=Silent())
        return LocalDealer(TaskSpec("bench", settings, self.parameters), tools)


PAPER_GPU = GpuSetting()
QUICK_GPU = GpuSetting(
    parameters=600, participants=4, lanes=40, numbers=64, cpu_numbers=2, turns=1, batch=64, key_bits=(2048,)
)


@dataclass
class Round:
    """Seconds of each stage of a round, and by how much its rewards differ from those in the clear."""

    lanes: int | None
    seconds: dict[str, float] = field(default_factory=dict)
    reward_error: float = 0.0

    @property
    def total(self) -> float:
        """Of the whole round."""
        return sum(self.seconds.values())

    @contextmanager
    def stage(self, name: str, say: Callable[[str], None]) -> Iterator[None]:
        """Times one stage."""
        start = time.perf_counter()
        yield
        self.seconds[name] = time.perf_counter() - start
        say(f"{name}: {self.seconds[name]:.2f} s")


def bench_gpu(
    setting: GpuSetting, backend: Backend, *, exact: bool = True, say: Callable[[str], None] = lambda _: None
) -> Report:
    """All rows on one backend; `say` hears what is being measured."""
    where = machine() | {"backend": backend.name}
    device = getattr(getattr(backend, "device", None), "name", None)
    where |= {"gpu": str(device)} if device else {}
    say("warming up: compiling, and a small round")
    _round(replace(setting, parameters=200, participants=3), 40, backend, lambda _: None)
    say("partial decryptions")
    keys = pctd.keygen(setting.prime_bits, insecure_test_key=setting.insecure_test_key)
    decryptions = _decryption_rows(setting, keys, backend)
    kinds = batches_grid(backend, keys.public, setting.key_bits, setting.batch, setting.cpu_numbers, say)
    rounds = [_round(setting, setting.lanes, backend, say)]
    if exact:
        rounds.append(_round(setting, None, backend, say))
    rows = (*decryptions, *(_round_row(setting, each) for each in rounds))
    return Report(setting.title, where, setting.to_dict(), {}, rows, (_stages_grid(rounds), kinds))


def _decryption_rows(setting: GpuSetting, keys: pctd.KeyPair, backend: Backend) -> tuple[Row, Row]:
    kernel = PartialDecrypt(keys.private.split()[0].exponent, keys.public.n_squared)
    numbers = Coins.fresh().residues(setting.numbers, int(keys.public.n_squared))
    batch = Batch("partial decryptions", kernel, (numbers,))
    rate, core_rate = measure(batch, backend, setting.cpu_numbers, setting.turns)
    peer = Peer("one core, GMP", Figure(core_rate, "", f"{setting.cpu_numbers} of the same numbers"))
    note = (
        f"{setting.numbers:,} random numbers, bytes to bytes, transfers included; best of {setting.turns}; "
        "the first results compared byte for byte with one core's"
    )
    whole = Row(
        "decryptions",
        "partial decryptions a second",
        Figure(rate, ""),
        Target(">= 40,000", "crowdfl", at_least=40_000),
        (peer,),
        judged=setting.judged,
        note=note,
    )
    speedup = Row(
        "speedup",
        "partial decryptions: this backend against one core",
        Figure(rate, ""),
        Target(">= 500", "ratio", at_least=500),
        (peer,),
        rate / core_rate,
        "backend / one core",
        setting.judged,
        note,
    )
    return whole, speedup


def _round(setting: GpuSetting, lanes: int | None, backend: Backend, say: Callable[[str], None]) -> Round:
    """Everyone encrypts, uploads, reads the average and opens its reward; results compared with those in the clear."""
    say(f"a round with {'exact distances' if lanes is None else f'{lanes:,} lanes'}: keys and tables")
    dealer = setting.dealer(lanes, backend)
    sp, csp = dealer.sp(), dealer.csp()
    people = {f"p{i:03}": dealer.participant(f"p{i:03}") for i in range(setting.participants)}
    models = [_model(setting, i) for i in range(setting.participants)]
    samples = [10 + i for i in range(setting.participants)]
    FreshRandomizers(dealer.task.public, backend=backend).take(1)  # its table is made once per key, not once per round
    payment = setting.participants * MILLION
    took = Round(lanes)
    with took.stage("encrypt", say):
        sides = zip(people.items(), models, samples, strict=True)
        uploads = {who: side.encrypt_update(model, count) for (who, side), model, count in sides}
    with took.stage("upload", say):
        sp.open_round(1)
        for who, upload in uploads.items():
            sp.add(who, upload)
    with took.stage("average", say):
        run_exchange(sp.publish(final=False), ask_directly(csp.answer))
        publication = sp.publication()
    with took.stage("deliver", say):
        averages = [side.read(publication, 1).weights for side in people.values()]
    with took.stage("reward", say):
        run_exchange(sp.reward(payment), ask_directly(csp.answer))
        envelopes = sp.envelopes()
    with took.stage("open rewards", say):
        rewards = [side.open_reward(envelopes[who], 1) for who, side in people.items()]
    expected = fedavg(models, samples)
    if any(np.abs(average - expected).max() > _STEPS for average in averages):
        raise ProtocolError("a round's average is not that of the models in the clear")
    took.reward_error = _reward_error(rewards, plain_rewards(models, samples, payment), exact=lanes is None)
    return took


def _model(setting: GpuSetting, i: int) -> npt.NDArray[np.float64]:
    """Participants that agree more or less: distances, and so rewards, differ."""
    common = made_up_weights(setting.parameters, 2021)
    return common + (0.01 + 0.002 * (i % 7)) * made_up_weights(setting.parameters, 3000 + i)


def _reward_error(rewards: list[int], expected: npt.NDArray[np.float64], *, exact: bool) -> float:
    """The largest relative error."""
    off = float(np.abs(np.array(rewards) / expected - 1).max())
    if exact and np.abs(np.array(rewards) - expected).max() > 1 + 1e-4 * expected.max():
        raise ProtocolError(f"rewards by exact distances are off by {off:.2g}")
    return off


def _round_row(setting: GpuSetting, took: Round) -> Row:
    exact = took.lanes is None
    limit = 180 if exact else 15
    name = "exact distances" if exact else f"{took.lanes:,} lanes"
    return Row(
        "round_exact" if exact else "round",
        f"a round of `hardened`, {setting.participants} participants, {name}",
        Figure(took.total, "s"),
        Target(f"< {limit} s", "crowdfl", at_most=limit),
        judged=setting.judged,
        note="everyone encrypts, SP adds up, both servers average, everyone reads, rewards, everyone opens its own; one "
        "process, parties in turn; key, table and compilation before; the average is that in the clear, rewards differ "
        f"by {took.reward_error:.2g} at most",
    )


def _stages_grid(rounds: list[Round]) -> Grid:
    columns = tuple("exact distances" if each.lanes is None else f"{each.lanes:,} lanes" for each in rounds)
    rows = tuple((stage, tuple(Figure(each.seconds[stage], "s") for each in rounds)) for stage in STAGES)
    return Grid("seconds of a round, by stage", columns, rows)
