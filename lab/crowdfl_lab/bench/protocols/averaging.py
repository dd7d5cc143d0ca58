"""Averaging and reading of `hardened`: a sample of publications beside its bare partial decryptions, and a whole average."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from crowdfl.crypto.paillier.budget import WidthBudget
from crowdfl.crypto.paillier.kernels import PartialDecrypt
from crowdfl.crypto.paillier.pctd import FreshRandomizers
from crowdfl.crypto.paillier.vector import CipherVector
from crowdfl.errors import ProtocolError
from crowdfl.protocols.common.keyed import keyed_party
from crowdfl.protocols.hardened.opening import CHUNK, OpenRequest
from crowdfl.protocols.hardened.profile import HardenedParticipant
from crowdfl.protocols.profile import Average, width_budget
from crowdfl.settings import TaskSettings
from crowdfl_lab.bench import workload
from crowdfl_lab.bench.workload import SERVERS, SIGMA, BenchSettings, Say, made_up_weights
from crowdfl_lab.observe import RoundRecorder, TimedBackend, seconds_by_kernel
from crowdfl_lab.report.results import Figure, Reference, Row, Target
from crowdfl_lab.timing import Timing, timed, turns

_FEWEST = 3  # uploads that a round needs
_READ_SAMPLES = 100


@dataclass(frozen=True, kw_only=True)
class ProtocolSettings(BenchSettings):
    """The paper's campaign, and smaller samples of it."""

    averaged_parameters: int = 500  # 23 ciphertexts and the total's, which divide evenly by 2 workers
    averaging_turns: int = 30  # many short turns: on a busy machine some of either kind fall into quiet moments
    reads: int = 3
    crowds: tuple[int, ...] = (5, 10)  # beside `participants`, for the count of openings
    small_parameters: int = 40
    small_crowd: int = 5
    operations: int = 8
    operation_turns: int = 3

    @classmethod
    def quick(cls) -> "ProtocolSettings":
        few = cls(parameters=600, participants=5, lanes=40, crowds=(3,), averaged_parameters=60, averaging_turns=2)
        return replace(few, reads=1, small_parameters=2, small_crowd=3, operations=1, operation_turns=1)

    def task(self, profile: str = "hardened", **others: Any) -> TaskSettings:  # noqa: ANN401
        sigma = SIGMA if profile == "hardened" else None
        return super().task(profile=profile, sigma=sigma, rounds=max(5, len(self.crowds) + 1), **others)

    @property
    def budget(self) -> WidthBudget:
        return width_budget(self.task(), self.parameters, SIGMA)


def averaging_rows(settings: ProtocolSettings, backend: TimedBackend, workers: str) -> tuple[list[Row], Timing, str]:
    """Publications of a sample, in turn with the bare partial decryptions of the same ciphertexts.

    SP masks, rerandomises, decrypts its half, sends; CSP checks, decrypts, seals; SP makes the publication. The rows, the
    time of a publication per ciphertext, and what it was taken from.
    """
    recorder = RoundRecorder(keep_messages=True)
    parties = settings.parties(settings.task(), backend, recorder, settings.averaged_parameters)
    # Once per key and process, whatever the number of ciphertexts: told apart.
    prepare = FreshRandomizers(parties.dealer.task.public).prepare
    table = f"the randomizers' table, once per key: {Figure(timed(prepare), 's')}"
    updates = {f"p{i}": (made_up_weights(settings.averaged_parameters, i), i + 1) for i in range(_FEWEST)}
    round_ = parties.open(1)
    round_.collect(parties.encrypt(updates))
    round_.average()
    sp, csp = keyed_party(parties.sp), keyed_party(parties.csp)
    requests = [message for sender, receiver, message in recorder.messages if (sender, receiver) == SERVERS]
    masked = CipherVector.concat([OpenRequest.from_bytes(request, sp.limits(CHUNK)).masked for request in requests])
    count = len(masked)
    counted = _counted_row(recorder, count)
    recorder.keep_messages = False
    recorder.reset()

    def bare() -> None:
        sp.partial_decrypt(masked)
        csp.partial_decrypt(masked)

    took = turns({"publish": round_.average, "bare": bare}, settings.averaging_turns)
    each = {name: _divided(timing, count) for name, timing in took.items()}
    sample = f"{settings.averaging_turns} publications of {count} ciphertexts"
    roles = {role: Figure(recorder.seconds_of(role) / settings.averaging_turns / count, "s") for role in SERVERS}
    kernels = seconds_by_kernel(backend.spans, recorder.laps)
    note = f"{', '.join(f'{role} {figure}' for role, figure in roles.items())}; of it {kernel_shares(kernels)}"
    return [counted, _time_row(each, sample, kernels, f"{note}; {table}", workers)], each["publish"], sample


def _counted_row(recorder: RoundRecorder, count: int) -> Row:
    halves = {role: Figure(recorder.total(role, "PDec") / count, "") for role in SERVERS}
    quantity, both = "averaging, total shown: partial decryptions per ciphertext", sum(h.value for h in halves.values())
    target = Target("exactly 2", "crowdfl", at_least=2, at_most=2)
    peers, note = tuple(map(Reference, halves, halves.values())), f"counted in one publication of {count} ciphertexts"
    return Row("averaging_decryptions", quantity, Figure(both, ""), target, peers, note=note)


def _time_row(each: Mapping[str, Timing], sample: str, kernels: Mapping[str, float], note: str, workers: str) -> Row:
    publish, bare = each["publish"], each["bare"]
    # Against the partial decryptions inside the exchange itself: no turn to wait for, no noise between.
    inside = sum(kernels.values()) / kernels[PartialDecrypt.__name__]
    ours, alone = (Figure(timing.minimum, "s", sample) for timing in (publish, bare))
    quantity = f"averaging, total shown: the whole publication per ciphertext, {workers}"
    how = (
        f"least of {len(publish.seconds)} turns; by medians {publish.median / bare.median:.3f}, by processor time "
        f"{sum(publish.cpu) / sum(bare.cpu):.3f}, against the decryptions inside the exchange {inside:.3f}; {note}"
    )
    row = Row("averaging_time", quantity, ours, Target("<= 1.10", "ratio", at_most=1.10), note=how)
    return row.over(Reference("its partial decryptions alone", alone), "whole / bare")


def _divided(timing: Timing, count: int) -> Timing:
    return Timing(tuple(s / count for s in timing.seconds), tuple(s / count for s in timing.cpu))


def kernel_shares(kernels: Mapping[str, float]) -> str:
    whole = sum(kernels.values())
    largest = sorted(kernels.items(), key=lambda item: -item[1])
    return ", ".join(f"{name} {spent / whole:.1%}" for name, spent in largest if spent / whole >= 0.001)


class BenchCampaign:
    """A `hardened` task at full size with an upload from everyone."""

    def __init__(self, settings: ProtocolSettings, backend: TimedBackend, say: Say) -> None:
        say(f"dealing a task of {settings.parameters:,} parameters")
        self.settings, self.backend, self.recorder = settings, backend, RoundRecorder()
        self.parties = settings.parties(settings.task(), backend, self.recorder)
        self.ciphertexts = settings.budget.ciphertexts + 1
        say(f"deriving {settings.participants} uploads from two")
        self.uploads = workload.full_uploads(self.parties, self.ciphertexts, settings.participants)
        FreshRandomizers(self.parties.dealer.task.public).prepare()


def reading_row(campaign: BenchCampaign) -> Row:
    """Unseal, subtract the masks, unpack, divide, on one core; in processor time, as the target says."""
    settings, dealer = campaign.settings, campaign.parties.dealer
    weights, public = made_up_weights(settings.parameters, 2021), dealer.task.public
    rows = workload.packed_model(settings.budget, public, weights, _READ_SAMPLES)
    reader, results = next(iter(campaign.parties.people.values())), list[Average]()
    audience, upload = cast(HardenedParticipant, reader).audience, campaign.uploads["p000"]
    publication = workload.sealed_publication(dealer.task, dealer.csp(), audience, rows, upload)
    wall = turns({"read": lambda: results.append(reader.read(publication, 1))}, settings.reads)["read"]
    # Order and signs of the packed weights are the task's own affair: but for those, they must be what went in.
    if not np.allclose(np.sort(np.abs(results[0].weights)), np.sort(np.abs(weights)), rtol=0, atol=1e-6):
        raise ProtocolError("the average that was read is not the one that was published")
    cpu, target = Timing(wall.cpu), Target("< 2 s", "crowdfl", at_most=2)
    quantity = f"a participant reads the average of {settings.parameters:,} parameters, rewards on, 1 core"
    how = f"processor time, {cpu}; on the wall clock {wall.median:.3g} s"
    note = f"{how}; {campaign.ciphertexts:,} ciphertexts, sealed beforehand from known values"
    return Row("reading", quantity, Figure(cpu.median, "s"), target, note=note)
