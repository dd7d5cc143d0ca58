"""CrowdFL's own rows: a participant at full size on one core, the servers on a slice or, where the backend is fast, whole."""

from dataclasses import dataclass

import numpy as np

from crowdfl.crypto.blocks import Block, from_ints
from crowdfl.crypto.budget import WidthBudget
from crowdfl.crypto.compute import Backend, Threads
from crowdfl.crypto.randomizers import FreshRandomizers, best_window
from crowdfl.crypto.randomness import Coins
from crowdfl.crypto.vector import CipherVector
from crowdfl.lab.bench.compare.round import Staged, server_stages, staged_round
from crowdfl.lab.bench.compare.rows import System
from crowdfl.lab.bench.compare.setting import CompareSetting, Variant
from crowdfl.lab.bench.crypto.measure import Replayed
from crowdfl.lab.bench.protocols.measure import sealed_publication
from crowdfl.lab.bench.protocols.setting import derived_uploads, made_up_weights
from crowdfl.lab.bench.rows import Figure
from crowdfl.lab.timing import timed, turns
from crowdfl.protocols.costs import CountingBackend
from crowdfl.protocols.hardened.prifedavg import dither
from crowdfl.protocols.hardened.prirwd import sketch
from crowdfl.protocols.parties import LocalDealer
from crowdfl.settings import TaskSettings

__all__ = ["Device", "Servers", "hardened_system", "measure_device", "paper_system", "sampled_servers", "whole_servers"]

_SAMPLES = 2
_ROLES = ("SP", "CSP")
_GOES_ON = "goes on with those who sent: nobody is asked again, nothing is repaired"


@dataclass(frozen=True)
class Device:
    """A participant at full size on one core, and what the servers are measured on."""

    dealer: LocalDealer
    ahead: float  # randomizers, made whenever the device is idle
    before: float
    after: float
    upload: bytes
    download: int
    window: int


def measure_device(setting: CompareSetting, variant: Variant) -> Device:
    """Encrypt an update with randomizers at hand, read an average."""
    task, one_core = setting.task(variant), Threads(1)
    dealer = setting.dealer(task, setting.parameters, one_core)
    public, budget = dealer.task.public, setting.budget(variant)
    side = dealer.participant("p000")
    window = best_window(public, budget.ciphertexts + 1)
    made: list[Block] = []
    source = FreshRandomizers(public, window, one_core)
    ahead = timed(lambda: made.append(source.take(side.upload_randomizers())))
    side.party.randomizers = Replayed(public, made[0])  # each taken once, from the first on
    weights, uploads = made_up_weights(setting.parameters, 2021), []
    after = timed(lambda: uploads.append(side.encrypt_update(weights, _SAMPLES)))
    stand_in = CipherVector.from_bytes(uploads[0], public, max_count=budget.ciphertexts + 1)
    opened = _opened(budget, dealer, weights, hidden=variant.hidden)
    publication = sealed_publication(dealer.task, dealer.csp(), opened, stand_in)
    before = turns({"read": lambda: side.read(publication, 1)}, setting.reads)["read"].median
    return Device(dealer, ahead, before, after, uploads[0], len(publication), window)


def _opened(
    budget: WidthBudget, dealer: LocalDealer, weights: np.ndarray[tuple[int], np.dtype[np.float64]], *, hidden: bool
) -> Block:
    """Plaintexts such as a round opens; reading does not depend on their values."""
    public = dealer.task.public
    packing = budget.packing(public)
    if hidden:
        return dither(Coins.fresh(), budget.ciphertexts, budget, packing)
    values = budget.weigh(budget.encoding.encode(weights).values, _SAMPLES)
    return np.concatenate([packing.pack(values), from_ints([_SAMPLES], public.plaintext_bytes)])


@dataclass(frozen=True)
class Servers:
    """Seconds of the servers at full size, by stage and role; of `add` and `sketch`, those of one upload."""

    add: float
    sketch: float
    publish: dict[str, float]
    reward: dict[str, float]  # of one participant, the sketch apart
    off: float
    sample: str
    note: str

    def seconds(self, role: str, crowd: int) -> float:
        """Of a round with so many uploads."""
        own = crowd * (self.add + self.sketch) if role == "SP" else 0.0
        return own + self.publish[role] + crowd * self.reward[role]


def sampled_servers(setting: CompareSetting, variant: Variant, device: Device, backend: Backend) -> Servers:
    """Adding and sketching at full size; averaging and rewarding on two slices, carried on from the larger."""
    budget = setting.budget(variant)
    took = []
    for rows, crowd in zip(setting.slices, setting.crowds, strict=True):
        parameters = (rows - 1) * budget.slots
        dealer = setting.dealer(setting.task(variant), parameters, backend)
        count = setting.budget(variant, parameters).ciphertexts + 1
        took.append(staged_round(dealer, count, crowd, rewards=variant.rewards))
    small, large = took
    whole = budget.ciphertexts + 1
    publish = {role: large.seconds["publish", role] * whole / large.rows for role in _ROLES}
    reward = {role: large.seconds["reward", role] / large.crowd for role in _ROLES}
    linear = [f"a ciphertext of the larger slice costs {_ratio(small, large, 'publish'):.2f} times the smaller's"]
    if variant.rewards:
        linear.append(
            f"a participant's reward among {large.crowd} {_ratio(small, large, 'reward'):.2f} times "
            f"that among {small.crowd}"
        )
    dropped = f" and rewards of {large.crowd}" if variant.rewards else ""
    return Servers(
        *_per_upload(setting, variant, device, backend),
        publish,
        reward,
        large.off,
        f"averaging of {large.rows} ciphertexts{dropped}; one upload added at full size",
        "; ".join(linear),
    )


def _ratio(small: Staged, large: Staged, stage: str) -> float:
    """Seconds per unit of the larger sample over those of the smaller: ciphertexts are averaged, participants rewarded."""
    units = (large.rows, small.rows) if stage == "publish" else (large.crowd, small.crowd)
    seconds = [sum(sample.seconds[stage, role] for role in _ROLES) for sample in (large, small)]
    return (seconds[0] / units[0]) / (seconds[1] / units[1])


def _per_upload(setting: CompareSetting, variant: Variant, device: Device, backend: Backend) -> tuple[float, float]:
    """Seconds to check and add one upload, and to sketch it."""
    sp = device.dealer.sp()
    sp.party.compute = CountingBackend(backend, sp.party.costs)
    sp.open_round(1)
    sp.add("p000", device.upload)  # the second is multiplied in, the first only kept
    seconds = timed(lambda: sp.add("p001", device.upload))
    if not variant.rewards:
        return seconds, 0.0
    budget = setting.budget(variant)
    vector = CipherVector.from_bytes(device.upload, device.dealer.task.public, max_count=budget.ciphertexts + 1)
    return seconds, timed(lambda: sketch(vector.part(0, -1), bytes(32), budget, sp.party))


def whole_servers(setting: CompareSetting, variant: Variant, backend: Backend) -> Servers:
    """Every upload added, the whole average, everyone's reward."""
    dealer = setting.dealer(setting.task(variant), setting.parameters, backend)
    sp, csp = dealer.sp(), dealer.csp()
    people = {f"p{i:03}": dealer.participant(f"p{i:03}") for i in range(setting.participants)}
    real = [
        side.encrypt_update(made_up_weights(setting.parameters, 2021 + i), 1 + i)
        for i, side in enumerate(list(people.values())[:2])
    ]
    rows = setting.budget(variant).ciphertexts + 1
    uploads = derived_uploads(real, dealer.task.public, rows, setting.participants, backend)
    took = Staged(rows, setting.participants)
    server_stages(sp, csp, dict(zip(people, uploads, strict=True)), took, rewards=variant.rewards)
    return Servers(
        took.seconds["add", "SP"] / took.crowd,
        0.0,  # within the rewards
        {role: took.seconds["publish", role] for role in _ROLES},
        {role: took.seconds["reward", role] / took.crowd for role in _ROLES},
        0.0,
        "",
        "measured whole; uploads are sums of two",
    )


def hardened_system(setting: CompareSetting, variant: Variant, device: Device, servers: Servers, where: str) -> System:
    """A row of `hardened`: `where` the servers compute."""
    seconds = {
        crowd: {role: servers.seconds(role, crowd) for role in _ROLES}
        for crowd in (setting.participants, setting.present)
    }
    whole, left = seconds[setting.participants], seconds[setting.present]
    sample = servers.sample
    figures = {
        "ahead": Figure(device.ahead, "s"),
        "before": Figure(device.before, "s"),
        "after": Figure(device.after, "s"),
        "upload": Figure(len(device.upload), "B"),
        "download": Figure(device.download, "B"),
        "sp": Figure(whole["SP"], "s", sample),
        "csp": Figure(whole["CSP"], "s", sample),
        "servers": Figure(sum(whole.values()), "s", sample),
        "dropped": Figure(sum(left.values()), "s", sample or f"the same parts, for {setting.present} uploads"),
    }
    if sample:
        figures["off"] = Figure(servers.off, "", f"the average of {setting.crowds[1]} small models")
    reads = (
        f"participants read the average{'' if variant.hidden else ' and the total'}; a server alone, with participants "
    )
    words = {
        "kind": "crowdfl",
        "drop": _GOES_ON,
        "reads": reads + "or without, nothing else; SP and CSP together everything",
        "rewards": "yes, each participant reads its own" if variant.rewards else "off",
    }
    budget = setting.budget(variant)
    layout = f"{budget.ciphertexts + 1:,} ciphertexts of {budget.slots} slots; table window {device.window} bits"
    name = variant.name if where == "cpu" else f"{variant.name}, servers on {where}"
    key = variant.key if where == "cpu" else f"{variant.key}_{where}"
    return System(key, name, figures, words, (layout, servers.note))


def paper_system(setting: CompareSetting, backend: Backend) -> System:
    """The profile `paper`, rewards on: two small rounds, carried on from the larger."""
    task = TaskSettings(profile="paper", max_participants=setting.participants, key_bits=2 * setting.prime_bits)
    small, large = (
        staged_round(setting.dealer(task, parameters, backend), parameters, crowd, rewards=True)
        for parameters, crowd in setting.paper_sizes
    )
    up = setting.parameters / large.rows

    def servers(role: str, crowd: int) -> float:
        shared, each = large.seconds["publish", role], large.seconds["add", role] + large.seconds["reward", role]
        return up * (shared + each * crowd / large.crowd)

    def device(*stages: str) -> float:
        return up * sum(large.seconds[stage, "participant"] for stage in stages) / large.crowd

    sample = f"a round of {large.rows} parameters and {large.crowd} participants"
    whole = {role: servers(role, setting.participants) for role in _ROLES}
    figures = {
        "before": Figure(device("read"), "s", sample),
        "after": Figure(device("prepare"), "s", sample),
        "upload": Figure(up * large.upload, "B", sample),
        "download": Figure(up * large.download, "B", sample),
        "sp": Figure(whole["SP"], "s", sample),
        "csp": Figure(whole["CSP"], "s", sample),
        "servers": Figure(sum(whole.values()), "s", sample),
        "dropped": Figure(sum(servers(role, setting.present) for role in _ROLES), "s", sample),
        "off": Figure(large.off, "", sample),
    }
    words = {
        "kind": "crowdfl",
        "drop": _GOES_ON,
        "reads": "SP with any one participant, or the requester's key alone: every upload; CSP reads averages and rewards "
        "off its divisions (`crowdfl audit`)",
        "rewards": "yes, CSP can read them",
    }
    note = (
        f"an averaged parameter of the larger sample costs {_ratio(small, large, 'publish'):.2f} times the "
        "smaller's; randomizers included in the times"
    )
    return System("paper", "paper, rewards on", figures, words, (note,))
