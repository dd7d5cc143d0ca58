"""CrowdFL's own systems: a participant at full size on one core; the servers on a slice or, on a fast backend, whole."""

from dataclasses import dataclass

from crowdfl.crypto.compute import Backend, Threads
from crowdfl.crypto.randomizers import FreshRandomizers
from crowdfl.crypto.randomness import Coins
from crowdfl.crypto.vector import CipherVector
from crowdfl.lab.bench.compare.system import GOES_ON, CompareSettings, System, Variant, figures_of
from crowdfl.lab.bench.crypto.measure import Replayed
from crowdfl.lab.bench.workload import (
    SERVERS,
    MeasuredRound,
    best_window,
    full_uploads,
    made_up_weights,
    packed_model,
    sealed_publication,
)
from crowdfl.lab.observe import RoundRecorder
from crowdfl.lab.parties import LocalParties
from crowdfl.lab.report.results import Figure
from crowdfl.lab.timing import timed, timed_call, turns
from crowdfl.protocols.costs import CountingBackend
from crowdfl.protocols.hardened.prifedavg import dither
from crowdfl.protocols.hardened.prirwd import sketch
from crowdfl.settings import MILLION, TaskSettings

__all__ = ["hardened_system", "measure_device", "paper_system", "sampled_servers", "whole_servers"]

_SAMPLES = 2
_AVERAGING = ("check", "average")
_NOBODY_ASKED = f"{GOES_ON}: nobody is asked again, nothing is repaired"


@dataclass(frozen=True)
class _Device:
    """A participant's figures at full size on one core, and what the servers are measured on."""

    figures: dict[str, Figure]
    parties: LocalParties
    upload: bytes
    window: int


def measure_device(settings: CompareSettings, variant: Variant) -> _Device:
    """Encrypt an update with randomizers at hand (they are made whenever the device is idle), read an average."""
    one_core, budget = Threads(1), settings.budget(variant)
    parties = settings.parties(settings.variant_task(variant), one_core, RoundRecorder())
    task, side = parties.dealer.task, parties.participant("p000")
    source = FreshRandomizers(task.public, best_window(task.public, budget.ciphertexts + 1), one_core)
    ahead, made = timed_call(lambda: source.take(side.upload_randomizers()))
    side.party.randomizers = Replayed(task.public, made)  # each taken once, from the first on
    weights = made_up_weights(settings.parameters, 2021)
    after, upload = timed_call(lambda: side.encrypt_update(weights, _SAMPLES))
    stand_in = CipherVector.from_bytes(upload, task.public, max_count=budget.ciphertexts + 1)
    # Plaintexts such as a round opens; reading does not depend on their values.
    if variant.hidden:
        opened = dither(Coins.fresh(), budget.ciphertexts, budget, budget.packing(task.public))
    else:
        opened = packed_model(budget, task.public, weights, _SAMPLES)
    publication = sealed_publication(task, parties.dealer.csp(), opened, stand_in)
    before = turns({"read": lambda: side.read(publication, 1)}, settings.reads)["read"].median
    sizes = {"upload": len(upload), "download": len(publication)}
    figures = figures_of({"ahead": ahead, "before": before, "after": after} | sizes)
    return _Device(figures, parties, upload, source.window)


@dataclass(frozen=True)
class _Servers:
    """Seconds of the servers at full size, by role: of a round, whatever the crowd, and of each participant in it."""

    shared: dict[str, float]
    each: dict[str, float]
    sample: str
    note: str
    off: float | None = None  # None: not compared with the average in the clear

    def figures(self, settings: CompareSettings) -> dict[str, Figure]:
        whole, left = (
            {role: self.shared[role] + crowd * self.each[role] for role in SERVERS}
            for crowd in (settings.participants, settings.present)
        )
        seconds = {"sp": whole["SP"], "csp": whole["CSP"], "servers": sum(whole.values())}
        fewer = self.sample or f"the same parts, for {settings.present} uploads"
        return figures_of(seconds, self.sample) | figures_of({"dropped": sum(left.values())}, fewer)


def _sample_round(
    settings: CompareSettings, task: TaskSettings, parameters: int, crowd: int, backend: Backend
) -> MeasuredRound:
    models = [made_up_weights(parameters, i) for i in range(crowd)]
    return settings.play(task, backend, models, rewards=task.lanes != 0)


def sampled_servers(settings: CompareSettings, variant: Variant, device: _Device, backend: Backend) -> _Servers:
    """Adding and sketching at full size; averaging and rewarding on two slices, extrapolated from the larger."""
    budget, task = settings.budget(variant), settings.variant_task(variant)
    small, large = (
        _sample_round(settings, task, (rows - 1) * budget.slots, crowd, backend)
        for rows, crowd in zip(settings.slices, settings.crowds, strict=True)
    )
    fewer, more = (settings.budget(variant, sample.parameters).ciphertexts + 1 for sample in (small, large))
    times = _times(small, large, _AVERAGING, fewer, more)
    note = f"a ciphertext of the larger slice costs {times:.2f} times the smaller's"
    if variant.rewards:
        times = _times(small, large, ("reward",), small.crowd, large.crowd)
        note += f"; a participant's reward among {large.crowd} {times:.2f} times that among {small.crowd}"
    shared = {role: large.seconds(role, *_AVERAGING) * (budget.ciphertexts + 1) / more for role in SERVERS}
    each = {role: large.seconds(role, "reward") / large.crowd for role in SERVERS}
    each["SP"] += _per_upload(settings, variant, device, backend)
    rewarded = f" and rewards of {large.crowd}" if variant.rewards else ""
    sample = f"averaging of {more} ciphertexts{rewarded}; one upload added at full size"
    return _Servers(shared, each, sample, note, large.off)


def _times(small: MeasuredRound, large: MeasuredRound, stages: tuple[str, ...], fewer: int, more: int) -> float:
    """Seconds of the servers per unit in the larger sample over those in the smaller."""
    spent = [sum(sample.seconds(role, *stages) for role in SERVERS) for sample in (small, large)]
    return (spent[1] / more) / (spent[0] / fewer)


def _per_upload(settings: CompareSettings, variant: Variant, device: _Device, backend: Backend) -> float:
    """Seconds to check and add one upload and, with rewards, to sketch it."""
    sp = device.parties.sp
    sp.party.compute = CountingBackend(backend, sp.party.costs)
    sp.open_round(1)
    sp.add("p000", device.upload)  # the second is multiplied in, the first only kept
    seconds = timed(lambda: sp.add("p001", device.upload))
    if not variant.rewards:
        return seconds
    budget = settings.budget(variant)
    vector = CipherVector.from_bytes(device.upload, sp.party.public, max_count=budget.ciphertexts + 1)
    return seconds + timed(lambda: sketch(vector.part(0, -1), bytes(32), budget, sp.party))


def whole_servers(settings: CompareSettings, variant: Variant, backend: Backend) -> _Servers:
    """Every upload added, the whole average, everyone's reward."""
    recorder, crowd = RoundRecorder(), settings.participants
    parties = settings.parties(settings.variant_task(variant), backend, recorder)
    uploads = full_uploads(parties, settings.budget(variant).ciphertexts + 1, crowd)
    round_ = parties.open(1)
    for who, upload in uploads.items():
        round_.collect({who: upload})
    round_.average()
    if variant.rewards:
        round_.reward(crowd * MILLION)
    shared = {role: recorder.seconds_of(role, *_AVERAGING) for role in SERVERS}
    each = {role: recorder.seconds_of(role, "collect", "reward") / crowd for role in SERVERS}
    return _Servers(shared, each, "", "measured whole; uploads are sums of two")


def hardened_system(
    settings: CompareSettings, variant: Variant, device: _Device, servers: _Servers, where: str
) -> System:
    """A row of `hardened`: `where` the servers compute."""
    figures = device.figures | servers.figures(settings)
    if servers.off is not None:
        figures |= figures_of({"off": servers.off}, f"the average of {settings.crowds[1]} small models")
    total = "" if variant.hidden else " and the total"
    words = {
        "kind": "crowdfl",
        "drop": _NOBODY_ASKED,
        "reads": f"participants read the average{total}; a server alone, with participants or without, nothing else; "
        "SP and CSP together everything",
        "rewards": "yes, each participant reads its own" if variant.rewards else "off",
    }
    budget = settings.budget(variant)
    layout = f"{budget.ciphertexts + 1:,} ciphertexts of {budget.slots} slots; table window {device.window} bits"
    key, name = variant.key, variant.name
    if where != "cpu":
        key, name = f"{key}_{where}", f"{name}, servers on {where}"
    return System(key, name, figures, words, (layout, servers.note))


def paper_system(settings: CompareSettings, backend: Backend) -> System:
    """The profile `paper`, rewards on: two small rounds, extrapolated from the larger."""
    task = TaskSettings(profile="paper", max_participants=settings.participants, key_bits=2 * settings.prime_bits)
    small, large = (_sample_round(settings, task, size, crowd, backend) for size, crowd in settings.paper_sizes)
    up, played = settings.parameters / large.parameters, large.played
    shared = {role: up * large.seconds(role, *_AVERAGING) for role in SERVERS}
    each = {role: up * large.seconds(role, "collect", "reward") / large.crowd for role in SERVERS}
    sample = f"a round of {large.parameters} parameters and {large.crowd} participants"
    times = _times(small, large, _AVERAGING, small.parameters, large.parameters)
    note = (
        f"an averaged parameter of the larger sample costs {times:.2f} times the smaller's; times include randomizers"
    )
    servers = _Servers(shared, each, sample, note)
    upload, envelope = (next(iter(sent.values())) for sent in (played.uploads, played.envelopes))
    device = {
        "before": up * large.seconds("participant", "read") / large.crowd,
        "after": up * large.seconds("participant", "encrypt") / large.crowd,
        "upload": up * len(upload),
        "download": up * (len(played.publication) + len(envelope)),
    }
    figures = figures_of(device, sample) | servers.figures(settings) | figures_of({"off": large.off}, sample)
    words = {
        "kind": "crowdfl",
        "drop": _NOBODY_ASKED,
        "reads": "SP with any one participant, or the requester's key alone: every upload; CSP reads averages and rewards "
        "off its divisions (`crowdfl audit`)",
        "rewards": "yes, CSP can read them",
    }
    return System("paper", "paper, rewards on", figures, words, (note,))
