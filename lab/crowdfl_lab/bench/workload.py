"""What every benchmark works on: sizes, made-up models, uploads derived from real ones, a whole round on the clock."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from crowdfl.crypto.blocks import Block, from_ints, to_ints
from crowdfl.crypto.coins import Coins
from crowdfl.crypto.compute import Backend, Kernel, Progress
from crowdfl.crypto.paillier import pctd
from crowdfl.crypto.paillier.budget import WidthBudget
from crowdfl.crypto.paillier.kernels import Combine, FixedBase, PartialDecrypt
from crowdfl.crypto.paillier.pctd import FreshRandomizers, PublicKey
from crowdfl.crypto.paillier.vector import CipherVector, PartialVector
from crowdfl.crypto.randomness import SEED_BYTES
from crowdfl.crypto.sealing import AudienceKey
from crowdfl.errors import ProtocolError
from crowdfl.learning.oracle import fedavg
from crowdfl.protocols.common.keyed import keyed_party
from crowdfl.protocols.hardened.csp import HardenedCsp
from crowdfl.protocols.hardened.opening import CHUNK, PARTICIPANTS, OpeningCsp, OpenRequest, Publication, mask_rows
from crowdfl.protocols.hardened.profile import HardenedParticipant
from crowdfl.protocols.hardened.record import HardenedRecord, sign_record
from crowdfl.protocols.party import CountingBackend
from crowdfl.protocols.profile import CspProtocol, KeyedTask, TaskSpec, Tools
from crowdfl.settings import MILLION, TaskSettings
from crowdfl.simulation.sides import Parties, PlayedRound
from crowdfl_lab.recorder import RoundRecorder
from crowdfl_lab.report.results import Result, Row
from crowdfl_lab.uploads import ciphertexts_in

Say = Callable[[str], None]
Floats = npt.NDArray[np.float64]
SIGMA = 40  # of `hardened`; the profile `paper` takes its own
SERVERS = ("SP", "CSP")
_TOLERATED = 3e-6  # of an average: a rounding of each profile is within a few millionths


@dataclass(frozen=True)
class MeasuredRound:
    """A whole round as its recorder saw it, and how far its average was from that in the clear."""

    parameters: int
    samples: list[int]
    recorder: RoundRecorder
    played: PlayedRound
    off: float


@dataclass(frozen=True, kw_only=True)
class BenchSettings:
    """The sizes of a run; the defaults are the paper's. Targets are judged at those alone."""

    parameters: int = 277_006
    participants: int = 36
    lanes: int = 1024
    prime_bits: int = pctd.SECURE_PRIME_BITS
    insecure_test_key: bool = False

    @property
    def judged(self) -> bool:
        return self == type(self)()

    @property
    def title(self) -> str:
        smoke = "" if self.judged else "; a smoke run: no target is judged"
        sizes = f"{self.parameters:,} parameters, {self.participants} participants, {self.lanes:,} lanes"
        return f"{sizes}, {self.key_title}{smoke}"

    @property
    def key_title(self) -> str:
        return f"|N| = {2 * self.prime_bits}{', INSECURE TEST KEY' if self.insecure_test_key else ''}"

    def task(self, **others: Any) -> TaskSettings:  # noqa: ANN401 -- as `TaskSettings` takes them
        """The settings of a task of these sizes: `hardened`, the total shown, unless told otherwise."""
        sizes = {"max_participants": self.participants, "lanes": self.lanes, "key_bits": 2 * self.prime_bits}
        return TaskSettings(**{"profile": "hardened"} | sizes | others)

    def parties(
        self,
        task: TaskSettings,
        backend: Backend,
        recorder: RoundRecorder,
        parameters: int | None = None,
        requester: bytes = b"",
    ) -> Parties:
        tools = Tools(backend, insecure_test_key=self.insecure_test_key, observer=recorder)
        return Parties(TaskSpec("bench", task, parameters or self.parameters, requester=requester), tools)

    def play(
        self, task: TaskSettings, backend: Backend, models: Sequence[Floats], *, say: Say = lambda _: None
    ) -> MeasuredRound:
        """Everyone uploads, the servers average and reward, everyone reads and opens; compared with FedAvg in the clear."""
        recorder = RoundRecorder(say=say)
        parties = self.parties(task, backend, recorder, len(models[0]))
        # The table is made once per key, not once per round.
        FreshRandomizers(parties.task.public, backend=backend).take(1)
        samples = [10 + i for i in range(len(models))]
        updates = {f"p{i:03}": update for i, update in enumerate(zip(models, samples, strict=True))}
        payment = None if task.lanes == 0 else len(models) * MILLION
        played = parties.play(1, parties.encrypt(updates), payment=payment, readers=None)
        off = float(np.abs(played.average.weights - fedavg(list(models), samples)).max())
        if off > _TOLERATED:
            raise ProtocolError(f"a round's average is off by {off:.2g} from that in the clear")
        return MeasuredRound(len(models[0]), samples, recorder, played, off)

    def result(self, name: str, machine: Mapping[str, str | int], rows: Sequence[Row] = (), **others: Any) -> Result:  # noqa: ANN401
        """A run; its targets are judged where the sizes are the paper's. `others` as `Result` takes them."""
        judged = tuple(replace(row, judged=row.judged and self.judged) for row in rows)
        return Result(name, self.title, machine, asdict(self), judged, command=f"crowdfl bench {name}", **others)


@dataclass
class Replayed:
    """Randomizers handed out again and again. Never outside a benchmark: twice the same one gives the plaintexts away."""

    public: PublicKey
    block: Block
    _next: int = field(default=0, repr=False)

    def take(self, count: int, *, progress: Progress | None = None) -> Block:
        del progress
        rows = np.arange(self._next, self._next + count) % len(self.block)
        self._next += count
        return self.block[rows]


def made_up_weights(parameters: int, seed: int) -> Floats:
    return np.random.default_rng(seed).normal(0, 0.5, parameters)


def made_up_models(parameters: int, crowd: int) -> list[Floats]:
    return [made_up_weights(parameters, seed) for seed in range(crowd)]


def packed_model(budget: WidthBudget, public: PublicKey, weights: Floats, samples: int) -> Block:
    """The plaintexts of an upload: the model encoded, weighed and packed, and the sample count in one of its own."""
    values = budget.weigh(budget.encoding.encode(weights).values, samples)
    return np.concatenate([budget.packing(public).pack(values), from_ints([samples], public.plaintext_bytes)])


def full_uploads(parties: Parties, length: int, count: int) -> dict[str, bytes]:
    """An upload of everyone; everyone is enrolled.

    Two are encrypted. The others are sums of those: what some participant with more samples could have sent.
    """
    names, parameters = [f"p{i:03}" for i in range(count)], parties.spec.parameters
    real = parties.encrypt({who: (made_up_weights(parameters, 2021 + i), 1 + i) for i, who in enumerate(names[:2])})
    for who in names:
        parties.participant(who)
    public, backend = parties.task.public, parties.tools.backend
    vectors = [
        CipherVector.from_bytes(ciphertexts_in(u), public, max_count=length, backend=backend) for u in real.values()
    ]
    upload, uploads = vectors[0], {names[0]: real[names[0]]}
    for turn, who in enumerate(names[1:], start=1):
        upload = upload.add(vectors[turn % 2], backend=backend)
        uploads[who] = cast(HardenedParticipant, parties.participant(who)).sign_upload(upload, 1)
    return uploads


class _NoPowers:
    """CSP's backend for a publication whose opened values are known: it seals them without decrypting anything."""

    name = "no powers"

    def __init__(self, inner: Backend, opened: Block) -> None:
        self.inner, self.opened, self.place = inner, opened, 0

    def map(self, kernel: Kernel, *blocks: Block, out: Block | None = None, progress: Progress | None = None) -> Block:
        if isinstance(kernel, PartialDecrypt):
            return blocks[0]
        if isinstance(kernel, Combine):
            self.place += len(blocks[0])
            return self.opened[self.place - len(blocks[0]) : self.place]
        return self.inner.map(kernel, *blocks, out=out, progress=progress)


def sealed_publication(task: KeyedTask, csp: CspProtocol, audience: AudienceKey, rows: Block, upload: bytes) -> bytes:
    """A publication of these plaintexts, masked and sealed as in a round; an upload stands in for its ciphertexts.

    By CSP's step alone: nothing goes before it. CSP is of no other use afterwards: its backend decrypts nothing.
    """
    public, seed = task.public, Coins.fresh().take(SEED_BYTES)
    starts, numbers = range(0, len(rows), CHUNK), ciphertexts_in(upload)
    stand_in = CipherVector.from_bytes(numbers, public, max_count=len(numbers))
    masks = [m for s in starts for m in to_ints(mask_rows(seed, s, min(CHUNK, len(rows) - s), public))]
    opened = from_ints(((v + m) % public.n for v, m in zip(to_ints(rows), masks, strict=True)), public.plaintext_bytes)
    party = keyed_party(csp)
    party.compute = CountingBackend(_NoPowers(party.backend, opened), party.costs)
    opening, sealed = OpeningCsp(party, {PARTICIPANTS: audience}), []
    for start in starts:
        part = stand_in.part(start, min(start + CHUNK, len(rows)))
        request = OpenRequest(1, PARTICIPANTS, start, part, PartialVector(public, part.block))
        message = OpenRequest.from_bytes(request.to_bytes(), party.limits(CHUNK))
        sealed.append(opening.answer(message, task.context(1)).sealed)
    people = tuple(f"p{place:03}" for place in range(task.settings.min_participants))
    record = sign_record(HardenedRecord(task.name, 1, b"", people, 0, b""), cast(HardenedCsp, csp).signing)
    return Publication(seed, len(rows), tuple(sealed), record).to_bytes()


def best_window(public: PublicKey, count: int) -> int:
    """The table window that makes `count` randomizers in the fewest multiplications, within 64 MiB (1 if none fits)."""

    def work(window: int) -> int:
        digits = -(-public.exponent_bits // window)
        return digits * ((1 << window) + count)

    def fits(window: int) -> bool:
        return FixedBase(public.h_s, public.n_squared, public.exponent_bits, window).table_bytes <= 64 * 2**20

    return min((window for window in range(2, 15) if fits(window)), key=work, default=1)
