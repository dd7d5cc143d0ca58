"""`crowdfl bench protocols`: what the protocols cost, in ratios taken in one run."""

from collections.abc import Callable

from crowdfl.crypto.compute import Threads
from crowdfl.crypto.randomizers import FreshRandomizers
from crowdfl.lab.bench.protocols import rows as compare
from crowdfl.lab.bench.protocols.clock import TimedBackend
from crowdfl.lab.bench.protocols.measure import average, read_average, reward
from crowdfl.lab.bench.protocols.profiles import measure_operations, measure_round
from crowdfl.lab.bench.protocols.setting import PAPER_PROTOCOLS, Campaign, ProtocolSetting
from crowdfl.lab.bench.rows import Report
from crowdfl.lab.timing import machine
from crowdfl.protocols.profile import Tools

__all__ = ["bench_protocols"]


def bench_protocols(
    setting: ProtocolSetting = PAPER_PROTOCOLS, *, say: Callable[[str], None] = lambda _: None
) -> Report:
    """All rows; `say` hears what is being measured."""
    where = machine()
    threads = Threads()
    backend = TimedBackend(threads)
    say("publishing a sample, in turn with its partial decryptions")
    averaged = average(setting, backend)

    campaign = Campaign(setting, Tools(backend, insecure_test_key=setting.insecure_test_key), say)
    FreshRandomizers(campaign.dealer.task.public).prepare()
    say("reading the whole average, one core")
    reading = read_average(setting, campaign)
    rewards = []
    for round_number, crowd in enumerate((*setting.crowds, setting.participants), start=1):
        say(f"PriRwd, {crowd} participants")
        rewards.append(reward(campaign, backend, crowd, round_number))

    costs = {}
    for profile in ("hardened", "paper"):
        say(f"a round of {setting.small_parameters} parameters, {profile}")
        costs[profile] = measure_round(setting, profile, backend)
    say("single SDIVs and SMULs, one core")
    operations = measure_operations(setting)

    rows = (
        *compare.averaging_rows(setting, averaged, threads.workers),
        compare.reading_row(setting, reading),
        *(compare.opening_row(setting, each) for each in rewards),
        compare.rewards_row(setting, rewards[-1], averaged, campaign.ciphertexts, threads.workers),
        *compare.operation_rows(operations),
    )
    grids = compare.parts_grid(rewards[-1]), compare.profiles_grid(setting, costs, threads.workers)
    cited = {"authors' C++ toolkit": "cited as published, not run here"}
    return Report(setting.title, where | {"workers": threads.workers}, setting.to_dict(), cited, rows, grids)
