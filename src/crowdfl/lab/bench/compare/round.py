"""One round of either profile on the clock, by stage and role: what samples are made of."""

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from crowdfl.crypto.randomizers import FreshRandomizers
from crowdfl.errors import ProtocolError
from crowdfl.lab.bench.protocols.clock import Lap, exchange
from crowdfl.lab.bench.protocols.setting import made_up_weights
from crowdfl.lab.parties import LocalDealer
from crowdfl.learning.fedavg import fedavg
from crowdfl.protocols.profile import CspProtocol, SpProtocol
from crowdfl.settings import MILLION

__all__ = ["Staged", "server_stages", "staged_round"]

_TOLERATED = 3e-6  # of an average: a rounding of each profile is within a few millionths


@dataclass
class Staged:
    """Seconds by stage and role, bytes of one participant, and how far the average was from that in the clear."""

    rows: int
    crowd: int
    seconds: defaultdict[tuple[str, str], float] = field(default_factory=lambda: defaultdict(float))
    upload: int = 0
    download: int = 0
    off: float = 0.0

    @contextmanager
    def at(self, stage: str, role: str) -> Iterator[None]:
        """Times a block of code."""
        start = time.perf_counter()
        yield
        self.seconds[stage, role] += time.perf_counter() - start

    def count(self, stage: str, laps: Sequence[Lap]) -> None:
        """Adds an exchange between the servers."""
        for lap in laps:
            self.seconds[stage, lap.role] += lap.seconds


def server_stages(
    sp: SpProtocol, csp: CspProtocol, uploads: Mapping[str, bytes], took: Staged, *, rewards: bool
) -> bytes:
    """SP adds the uploads up, both average, and with rewards: compute them. Returns the publication."""
    sp.open_round(1)
    for who, upload in uploads.items():
        with took.at("add", "SP"):
            sp.add(who, upload)
    took.count("publish", exchange(sp.publish(final=False), csp.answer))
    with took.at("publish", "SP"):
        publication = sp.publication()
    if rewards:
        took.count("reward", exchange(sp.reward(len(uploads) * MILLION), csp.answer))
    return publication


def staged_round(dealer: LocalDealer, rows: int, crowd: int, *, rewards: bool) -> Staged:
    """Everyone uploads, the servers average and reward, everyone reads; the average is compared with that in the clear."""
    FreshRandomizers(dealer.task.public).prepare()  # the table is made once per key, not once per round
    sp, csp = dealer.sp(), dealer.csp()
    people = {f"p{i:03}": dealer.participant(f"p{i:03}") for i in range(crowd)}
    models = [made_up_weights(dealer.spec.parameters, i) for i in range(crowd)]
    samples = [10 + i for i in range(crowd)]
    took = Staged(rows, crowd)
    uploads = {}
    for (who, side), model, count in zip(people.items(), models, samples, strict=True):
        with took.at("prepare", "participant"):
            uploads[who] = side.encrypt_update(model, count)
    publication = server_stages(sp, csp, uploads, took, rewards=rewards)
    for side in people.values():
        with took.at("read", "participant"):
            average = side.read(publication, 1)
    envelopes = sp.envelopes() if rewards else {}
    for who, envelope in envelopes.items():
        with took.at("open", "participant"):
            people[who].open_reward(envelope, 1)
    took.off = float(np.abs(average.weights - fedavg(models, samples)).max())
    if took.off > _TOLERATED:
        raise ProtocolError(f"the average of a sample is off by {took.off:.2g}")
    took.upload = len(uploads["p000"])
    took.download = len(publication) + (len(envelopes["p000"]) if rewards else 0)
    return took
