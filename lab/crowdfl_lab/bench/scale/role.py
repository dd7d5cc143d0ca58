"""One role in a fresh process, so that its memory is its own: `play_role`.

Over its pipe go the protocol's messages and last what was measured. Its clock shows processor time.
"""

import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from crowdfl.crypto.blocks import Block
from crowdfl.crypto.compute import Backend, Kernel, Progress, Threads
from crowdfl.crypto.long_bytes import Long, whole
from crowdfl.crypto.paillier.kernels import Combine, FixedBasePower, PartialDecrypt
from crowdfl.crypto.paillier.pctd import FreshRandomizers
from crowdfl.crypto.signing import SigningKey
from crowdfl.protocols.exchange import Reply, ask_directly
from crowdfl.protocols.hardened.manifest import HardenedUpload
from crowdfl.protocols.hardened.opening import OpenRequest
from crowdfl.protocols.messages import Message
from crowdfl.protocols.party import KeyedParty, Party
from crowdfl.protocols.profile import CspProtocol, ParticipantKeys, SpProtocol, TaskSpec, Tools
from crowdfl.protocols.registry import profile_named
from crowdfl.protocols.round import AggregationRound
from crowdfl.roles.kept_file import KeptFile
from crowdfl.settings import TaskSettings
from crowdfl.simulation.sides import BesideRecords, told
from crowdfl_lab.bench.workload import made_up_weights
from crowdfl_lab.recorder import RoundRecorder
from crowdfl_lab.timing import current_bytes, peak_bytes

UPLOADS, PUBLICATION, END = "uploads", "publication", b""
_GROUP = 15  # uploads that go in together, as in a service
_STAGES = {"collect": "add", "check": "publish", "average": "publish"}  # as the tables name them


@dataclass
class Sampled:
    """Of partial decryptions and randomizers, the first `rows` are computed; the others are filled in and counted.

    The servers open their vectors in the same order, so that the rows both have computed decrypt and the others are not
    tried. For measuring alone: a publication made this way is worth nothing past its first rows.
    """

    inner: Backend
    rows: int
    name: str = "sampled"
    stage: Callable[[], str] = str  # of the round, now
    stages: set[str] = field(default_factory=set)  # in which rows were left out
    done: defaultdict[type, int] = field(default_factory=lambda: defaultdict(int))
    skipped: defaultdict[type, int] = field(default_factory=lambda: defaultdict(int))
    spent: defaultdict[type, float] = field(default_factory=lambda: defaultdict(float))

    def map(self, kernel: Kernel, *blocks: Block, out: Block | None = None, progress: Progress | None = None) -> Block:
        kind = type(kernel)
        if kind not in (PartialDecrypt, FixedBasePower, Combine):
            return self.inner.map(kernel, *blocks, out=out, progress=progress)
        count = len(blocks[0])
        take = min(count, max(0, self.rows - self.done[kind]))
        start = time.process_time()
        computed = self.inner.map(kernel, *(block[:take] for block in blocks), progress=progress)
        self.spent[kind] += time.process_time() - start
        self.done[kind] += take
        self.skipped[kind] += count - take
        if take < count:
            self.stages.add(_STAGES.get(self.stage(), self.stage()))
        result = np.empty((count, kernel.out_width), dtype=np.uint8) if out is None else out
        result[:take] = computed
        result[take:] = blocks[0][take:] if kind is PartialDecrypt else 0
        if kind is FixedBasePower:
            result[take:, -1] = 1  # a randomizer of 1: the ciphertext stays a ciphertext
        return result

    @property
    def missing(self) -> float:
        """Processor seconds that the rows left out would have taken, by those computed."""
        return sum(self.spent[kind] / self.done[kind] * count for kind, count in self.skipped.items() if count)


class _Role:
    """What every role starts from. What sampling leaves out is on its clock, too."""

    def __init__(self, order: dict[str, Any]) -> None:
        self.order = order
        self.folder = Path(order["folder"])
        self.baseline = 0
        self.backend = Sampled(Threads(1), order["rows"], stage=lambda: self.recorder.stage)
        self.recorder = RoundRecorder(clock=lambda: time.process_time() + self.backend.missing)
        self.tools = Tools(self.backend, insecure_test_key=order["insecure_test_key"], observer=self.recorder)
        self.spec = TaskSpec("scale", TaskSettings.of(**order["task"]), order["parameters"])
        self.profile = profile_named(self.spec.settings.profile)
        self.bundle = order.pop("bundle")

    def begin(self, party: Party, server: SpProtocol | CspProtocol | None = None) -> None:
        """Everything is built and everyone is enrolled: what memory grows by from here is the role's work."""
        if server is not None:
            own, people = self.order["role"], self.order.pop("people")
            told(server, people, lambda n: KeptFile((self.folder / f"{own}.dealt.{n}").open("rb"), 0))
        if isinstance(party, KeyedParty):
            FreshRandomizers(party.public).prepare()
        self.baseline = current_bytes()

    def participant(self) -> None:
        side = self.profile.participant(self.spec, self.bundle, ParticipantKeys.fresh("p"), self.tools)
        self.begin(side.party)
        publication = self.folder / PUBLICATION
        self.recorder.begin("read" if publication.exists() else "encrypt")
        with self.recorder.working("participant"):
            if publication.exists():
                side.read(publication.read_bytes(), 1)
            else:
                upload = side.encrypt_update(made_up_weights(self.spec.parameters, 2021), 1, 1)
                (self.folder / UPLOADS).write_bytes(upload)

    def sp(self, hear: Callable[[], bytes], say: Callable[[bytes], None]) -> None:
        sp = self.profile.sp(self.spec, self.bundle, self.tools)
        self.begin(sp.party, sp)
        size = (self.folder / UPLOADS).stat().st_size // self.order["uploads"]

        signing = self.order.pop("signing")

        def upload(place: int) -> bytes:
            """A few are in memory at a time; where there are fewer than people, they serve in turn, each signed by its own."""
            file.seek(place % self.order["uploads"] * size)
            found, who = file.read(size), f"p{place:07}"
            if Message.kind_of(found) != HardenedUpload.kind:
                return found
            numbers = HardenedUpload.parse(found).numbers
            return HardenedUpload.signed(self.spec.name, 1, who, numbers, SigningKey(signing[who])).to_bytes()

        def reply_to(request: Long) -> Reply:
            say(whole(request))
            return partial(bytes, hear())  # waiting for CSP is on nobody's clock

        with (self.folder / UPLOADS).open("rb") as file:
            round_ = AggregationRound(sp, reply_to, self.recorder)
            self.recorder.begin("collect")
            for start in range(0, crowd := self.order["crowd"], _GROUP):
                names = {f"p{place:07}": str(place) for place in range(start, min(crowd, start + _GROUP))}
                with self.recorder.working("SP"):
                    if wrong := [*filter(None, sp.refusals([(who, upload(int(name))) for who, name in names.items()]))]:
                        raise wrong[0]
                    sp.add_stored("", names, lambda name: upload(int(name)))
            if self.order["payment"]:
                round_.reward(self.order["payment"])
            (self.folder / PUBLICATION).write_bytes(round_.average())
        say(END)

    def csp(self, hear: Callable[[], bytes], say: Callable[[bytes], None]) -> None:
        side = self.profile.csp(self.spec, self.bundle, self.tools)
        self.begin(side.party, side)
        csp = BesideRecords(side)
        ask, mixed = ask_directly(csp.answer, self.recorder), self.profile.name == "shares"
        while request := hear():
            opens = Message.kind_of(request) == OpenRequest.kind
            self.recorder.begin("round" if mixed else "average" if opens else "reward")
            say(whole(ask(request)()))

    def measured(self) -> dict[str, Any]:
        seconds: defaultdict[str, float] = defaultdict(float)
        for lap in self.recorder.laps:
            seconds[_STAGES.get(lap.stage, lap.stage)] += lap.seconds
        memory = peak_bytes() - self.baseline
        return {"seconds": dict(seconds), "sampled": sorted(self.backend.stages), "memory": memory}


def play_role(order: dict[str, Any], pipe: "Connection[Any, Any]") -> None:
    role, name = _Role(order), order["role"]
    if name == "participant":
        role.participant()
    else:
        {"sp": role.sp, "csp": role.csp}[name](pipe.recv_bytes, pipe.send_bytes)
    pipe.send(role.measured())
