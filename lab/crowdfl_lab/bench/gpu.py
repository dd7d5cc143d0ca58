"""`crowdfl bench gpu`: partial decryptions a second, every kind of batch, and whole rounds of `hardened`, on one GPU."""

import secrets
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from gmpy2 import mpz

from crowdfl.crypto.blocks import Block
from crowdfl.crypto.coins import Coins
from crowdfl.crypto.compute import Backend, Kernel
from crowdfl.crypto.paillier import kernels, pctd
from crowdfl.crypto.paillier.pctd import PublicKey
from crowdfl.errors import ProtocolError
from crowdfl.learning.oracle import rewards as plain_rewards
from crowdfl.settings import MILLION
from crowdfl_lab.bench.workload import BenchSettings, Say, made_up_weights
from crowdfl_lab.report.results import Cell, Figure, Reference, Result, ResultTable, Row, Target
from crowdfl_lab.timing import machine, timed_call

# As the table names them, and as a round does.
STAGES = {
    "encrypt": ("encrypt",),
    "upload": ("collect",),
    "average": ("check", "average"),
    "deliver": ("read",),
    "reward": ("reward",),
    "open rewards": ("open",),
}
_TOLERATED = 1e-6  # of the weights: what an average may be off by
_MASK_BITS = 104  # of a mask's sum in a round of 36 with 4,096 lanes


@dataclass(frozen=True, kw_only=True)
class GpuSettings(BenchSettings):
    """The paper's round with more lanes, and batches of many numbers."""

    lanes: int = 4096
    numbers: int = 1 << 17
    cpu_numbers: int = 16
    turns: int = 3
    batch: int = 1 << 16
    key_bits: tuple[int, ...] = (1024, 2048, 3072)

    @classmethod
    def quick(cls) -> "GpuSettings":
        small = cls(parameters=600, participants=4, lanes=40, key_bits=(2048,))
        return replace(small, numbers=64, cpu_numbers=2, turns=1, batch=64)


def bench_gpu(settings: GpuSettings, backend: Backend, *, say: Say = lambda _: None) -> Result:
    where = machine() | {"backend": backend.name}
    device = getattr(getattr(backend, "device", None), "name", None)
    where |= {"gpu": str(device)} if device else {}
    say("warming up: compiling, and a small round")
    _round(replace(settings, parameters=200, participants=3), 40, backend, lambda _: None)
    say("partial decryptions")
    keys = pctd.keygen(settings.prime_bits, insecure_test_key=settings.insecure_test_key)
    rows = decryption_rows(settings, keys, backend)
    kinds = _batches_table(settings, keys.public, backend, say)
    rounds = [_round(settings, lanes, backend, say) for lanes in (settings.lanes, None)]
    cells: list[tuple[Cell, ...]] = [(s, *(Figure(took[s], "s") for _, _, took in rounds)) for s in STAGES]
    columns = ("stage", *(name for name, _, _ in rounds))
    stages = ResultTable("seconds of a round, by stage", columns, tuple(cells))
    return settings.result("gpu", where, [*rows, *(row for _, row, _ in rounds)], tables=(stages, kinds))


@dataclass(frozen=True)
class _Batch:
    """A kernel on random numbers; `each` numbers make a row."""

    name: str
    kernel: Kernel
    blocks: tuple[Block, ...]
    each: int = 1

    def measure(self, backend: Backend, sample: int, turns: int) -> tuple[float, float]:
        """Numbers a second on the backend and, from the first `sample` rows, on one core; the results compared."""
        few = [block[:sample] for block in self.blocks]
        ours = [timed_call(lambda: backend.map(self.kernel, *self.blocks)) for _ in range(turns)]
        core = [timed_call(lambda: self.kernel.run(*few)) for _ in range(turns)]
        best, one_core = (min(seconds for seconds, _ in took) for took in (ours, core))
        if not np.array_equal(ours[0][1][:sample], core[-1][1]):
            raise ProtocolError(f"{self.name}: the backend's results are not those of one core")
        return len(self.blocks[0]) * self.each / best, len(few[0]) * self.each / one_core


def decryption_rows(settings: GpuSettings, keys: pctd.KeyPair, backend: Backend) -> list[Row]:
    kernel = kernels.PartialDecrypt(keys.private.split()[0].exponent, keys.public.n_squared)
    numbers = Coins.fresh().residues(settings.numbers, int(keys.public.n_squared))
    batch = _Batch("partial decryptions", kernel, (numbers,))
    rate, core_rate = batch.measure(backend, settings.cpu_numbers, settings.turns)
    peer = Reference("one core, GMP", Figure(core_rate, "", f"{settings.cpu_numbers} of the same numbers"))
    how = f"{settings.numbers:,} random numbers, bytes to bytes, transfers included; best of {settings.turns}"
    note = f"{how}; the first results compared byte for byte with one core's"
    many, faster = Target(">= 40,000", "crowdfl", at_least=40_000), Target(">= 500", "ratio", at_least=500)
    whole = Row("decryptions", "partial decryptions a second", Figure(rate, ""), many, (peer,), note=note)
    quantity = "partial decryptions: this backend against one core"
    return [whole, Row("speedup", quantity, whole.crowdfl, faster, note=note).over(peer, "backend / one core")]


def _decryption_batch(key_bits: int, count: int) -> _Batch:
    """Partial decryptions modulo the square of a random odd number, by an exponent as long as a key share."""
    n = mpz(secrets.randbits(key_bits)) | 1 | 3 << (key_bits - 2)
    share = mpz(secrets.randbits(2 * key_bits - 1)) | 1 << (2 * key_bits - 2)
    name = f"partial decryptions, |N| = {key_bits:,}"
    return _Batch(name, kernels.PartialDecrypt(share, n * n), (Coins.fresh().residues(count, int(n * n)),))


def _batches(public: PublicKey, count: int) -> list[_Batch]:
    """What a round is made of, under one key: random numbers are units but for luck that nobody has."""
    coins = Coins.fresh()
    n = public.n
    square = public.n_squared
    numbers, others = (coins.residues(count, int(square)) for _ in range(2))
    size = 32
    exponents = coins.residues(count, 1 << _MASK_BITS).reshape(count // size, -1)
    fixed = kernels.FixedBase(public.h_s, square, public.exponent_bits)
    signs = (np.frombuffer(coins.take(count), dtype=np.uint8) & np.uint8(1)).reshape(-1, size)
    rows = numbers.reshape(count // size, -1)
    powers = kernels.MultiPow(square, size, _MASK_BITS)
    return [
        _Batch("multiplications", kernels.MulMod(square), (numbers, others)),
        _Batch("checks of received numbers", kernels.CheckUnits(n), (numbers,)),
        _Batch("randomizers", kernels.FixedBasePower(fixed), (coins.residues(count, 1 << fixed.exponent_bits),)),
        _Batch("encryptions, randomizers at hand", kernels.Encrypt(n), (coins.residues(count, int(n)), numbers)),
        _Batch("numbers in signed bucket products", kernels.BucketProduct(square, size), (rows, signs), size),
        _Batch(f"numbers in products of {_MASK_BITS}-bit powers", powers, (rows, exponents), size),
    ]


def _batches_table(settings: GpuSettings, public: PublicKey, backend: Backend, say: Say) -> ResultTable:
    """One row a kind of batch: partial decryptions at several key sizes, everything else under one key."""
    kinds = [_decryption_batch(bits, settings.batch) for bits in settings.key_bits] + _batches(public, settings.batch)
    rows = []
    for batch in kinds:
        say(batch.name)
        backend.map(batch.kernel, *batch.blocks)  # compiles, makes tables
        rate, core = batch.measure(backend, settings.cpu_numbers, 2)
        rows.append((batch.name, Figure(rate, ""), Figure(core, ""), Figure(rate / core, "")))
    title = f"numbers a second, in batches of {settings.batch:,}"
    return ResultTable(title, ("kind", "backend", "one core", "ratio"), tuple(rows))


def _round(settings: GpuSettings, lanes: int | None, backend: Backend, say: Say) -> tuple[str, Row, dict[str, float]]:
    """A whole round, its results compared with those in the clear, and its seconds by stage. No lanes: exact distances."""
    name = "exact distances" if lanes is None else f"{lanes:,} lanes"
    crowd = settings.participants
    say(f"a round with {name}: keys and tables")
    # Participants that agree more or less: distances, and so rewards, differ.
    common, *own = (made_up_weights(settings.parameters, seed) for seed in (2021, *range(3000, 3000 + crowd)))
    models = [common + (0.01 + 0.002 * (i % 7)) * weights for i, weights in enumerate(own)]
    took = settings.play(settings.task(lanes=lanes), backend, models, say=say)
    if took.off > _TOLERATED:
        raise ProtocolError(f"a round's average is off by {took.off:.2g} from that in the clear")
    expected = plain_rewards(models, took.samples, crowd * MILLION)
    error = reward_error(list(took.played.rewards.values()), expected, exact=lanes is None)
    laps = took.recorder.laps
    stages = {name: sum(lap.seconds for lap in laps if lap.stage in stages) for name, stages in STAGES.items()}
    key, limit = ("round_exact", 180) if lanes is None else ("round", 15)
    quantity = f"a round of `hardened`, {crowd} participants, {name}"
    target = Target(f"< {limit} s", "crowdfl", at_most=limit)
    how = "from encrypting to everyone's opened reward, in one process; key, table and compilation before"
    note = f"{how}; the average is that in the clear, rewards differ by {error:.2g} at most"
    return name, Row(key, quantity, Figure(sum(stages.values()), "s"), target, note=note), stages


def reward_error(rewards: list[int], expected: npt.NDArray[np.float64], *, exact: bool) -> float:
    """The largest relative error; by exact distances, rewards must be those in the clear."""
    off = float(np.abs(np.array(rewards) / expected - 1).max())
    if exact and np.abs(np.array(rewards) - expected).max() > 1 + 1e-4 * expected.max():
        raise ProtocolError(f"rewards by exact distances are off by {off:.2g}")
    return off
