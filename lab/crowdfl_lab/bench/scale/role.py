"""One role of `hardened` in a process of its own, so that its memory is its own: `python -m crowdfl_lab.bench.scale.role`."""

import json
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from crowdfl.crypto.blocks import Block
from crowdfl.crypto.compute import Backend, Kernel, Progress, Threads
from crowdfl.crypto.paillier.kernels import Combine, FixedBasePower, PartialDecrypt
from crowdfl.crypto.paillier.pctd import FreshRandomizers
from crowdfl.protocols.common.keyed import keyed_party
from crowdfl.protocols.exchange import Reply, ask_directly
from crowdfl.protocols.hardened.opening import OpenRequest
from crowdfl.protocols.messages import Message
from crowdfl.protocols.party import KeyedParty
from crowdfl.protocols.profile import Identity, ParticipantKeys, TaskSpec, Tools
from crowdfl.protocols.registry import PROFILES
from crowdfl.protocols.round import AggregationRound
from crowdfl.settings import MILLION, TaskSettings
from crowdfl_lab.bench.scale.frames import END, STAGES, read_frame, write_frame
from crowdfl_lab.bench.workload import made_up_weights
from crowdfl_lab.observe import RoundRecorder
from crowdfl_lab.timing import current_bytes, peak_bytes

UPLOAD, PUBLICATION = "0.upload", "publication"
MODULE = "crowdfl_lab.bench.scale.role"


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
            self.stages.add(STAGES.get(self.stage(), self.stage()))
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
    """What every role starts from. Its clock shows processor time, what sampling leaves out included."""

    def __init__(self, order: dict[str, Any]) -> None:
        self.order, self.folder, self.baseline = order, Path(order["folder"]), 0
        self.backend = Sampled(Threads(1), order["rows"], stage=lambda: self.recorder.stage)
        self.recorder = RoundRecorder(clock=lambda: time.process_time() + self.backend.missing)
        self.tools = Tools(self.backend, insecure_test_key=order["insecure_test_key"], observer=self.recorder)
        self.spec = TaskSpec("scale", TaskSettings(**order["task"]), order["parameters"])
        self.profile = PROFILES["hardened"]
        self.bundle = bytes.fromhex(order.pop("bundle"))
        self.people = [Identity(who, bytes.fromhex(s), bytes.fromhex(r)) for who, s, r in order["people"]]

    def begin(self, party: KeyedParty) -> None:
        """Everything is built: what memory grows by from here is the role's work."""
        FreshRandomizers(party.public).prepare()
        self.baseline = current_bytes()

    def measured(self) -> dict[str, Any]:
        seconds: defaultdict[str, float] = defaultdict(float)
        for (stage, _), spent in self.recorder.seconds.items():
            seconds[STAGES.get(stage, stage)] += spent
        memory = peak_bytes() - self.baseline
        return {"seconds": seconds, "sampled": sorted(self.backend.stages), "memory": memory}


def _participant(role: _Role) -> None:
    side = role.profile.participant(role.spec, role.bundle, ParticipantKeys.fresh("p"), role.tools)
    role.begin(keyed_party(side))
    publication = role.folder / PUBLICATION
    role.recorder.begin("read" if publication.exists() else "encrypt")
    with role.recorder.working("participant"):
        if publication.exists():
            side.read(publication.read_bytes(), 1)
        else:
            upload = side.encrypt_update(made_up_weights(role.spec.parameters, 2021), 1, 1)
            (role.folder / UPLOAD).write_bytes(upload)


def _sp(role: _Role, hear: Callable[[], bytes], say: Callable[[bytes], None]) -> None:
    sp = role.profile.sp(role.spec, role.bundle, role.tools)
    for identity in role.people:
        sp.enrol(identity)
    sp.set_upload_loader(lambda _: (role.folder / UPLOAD).read_bytes())
    role.begin(keyed_party(sp))

    def reply_to(request: bytes) -> Reply:
        say(request)
        return partial(bytes, hear())  # waiting for CSP is on nobody's clock

    round_ = AggregationRound(sp, reply_to, role.recorder)
    for i in range(role.order["crowd"]):
        who = role.people[i].who if role.people else f"p{i:07}"
        round_.collect({who: (role.folder / UPLOAD).read_bytes()})
    round_.average()
    if role.people:
        round_.reward(len(role.people) * MILLION)
    say(END)


def _csp(role: _Role, hear: Callable[[], bytes], say: Callable[[bytes], None]) -> None:
    csp = role.profile.csp(role.spec, role.bundle, role.tools)
    for identity in role.people:
        csp.enrol(identity)
    role.begin(keyed_party(csp))
    ask = ask_directly(csp.answer, role.recorder)
    while request := hear():
        role.recorder.begin("average" if Message.kind_of(request) == OpenRequest.kind else "reward")
        say(ask(request)())


def main() -> None:
    hear, say = partial(read_frame, sys.stdin.buffer), partial(write_frame, sys.stdout.buffer)
    role = _Role(json.loads(hear()))
    if role.order["role"] == "participant":
        _participant(role)
    else:
        {"sp": _sp, "csp": _csp}[role.order["role"]](role, hear, say)
    say(json.dumps(role.measured()).encode())


if __name__ == "__main__":
    main()
