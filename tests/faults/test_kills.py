"""SIGKILL between every pair of durable steps of a campaign, against real processes."""

import random
import shutil
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from crowdfl.errors import CrowdFLError
from tests.faults.durable import ANY, Kill, idle
from tests.faults.outcome import Outcome
from tests.faults.supervisor import Campaign
from tests.hosts import HARDENED

SAMPLE = {"kgc": 2, "csp": 4, "sp": 5, "operator": 1, "requester": 1, "person0": 2, "person1": 1}
KILLED = tuple(SAMPLE)  # person2 does nothing that person1 does not
OWN = ("dealt", "csp_records.", "chain.", "rejected", "left")  # in the names of steps that only `shares` has
SHARDS, SLOW_SHARDS = 4, 10  # few deaths in each: no test takes long, even on a busy machine
HIDDEN_SHARDS = 2
LIVES = 3
Point = tuple[str, Kill]
WRITTEN = "blobs.put_all<uploads.receive<sp_uploads.receive"
ACKNOWLEDGED = "sql.acknowledge<uploads._take<uploads.receive<sp_uploads.receive"


def points(campaign: Campaign, role: str) -> list[Point]:
    """Before and after each durable step of a role; of those that come more or less often, the first."""
    times = Counter(campaign.steps(role))
    last = {name: 1 if idle(name) else count for name, count in times.items()}
    steps = [(name, time) for name, most in last.items() for time in range(1, most + 1)]
    return [(role, Kill(name, time, after)) for name, time in steps for after in (False, True)]


def sample(campaign: Campaign) -> list[Point]:
    """A few of each role's, always the same ones: half of them of what `shares` alone does, if it is that."""
    draw, chosen = random.Random(4), []  # noqa: S311 -- no secret
    for role, count in SAMPLE.items():
        every = points(campaign, role)
        own = [point for point in every if any(part in point[1].name for part in OWN)]
        first = draw.sample(own, min(len(own), count // 2))
        chosen += first + draw.sample([point for point in every if point not in first], count - len(first))
    return chosen


def test_the_steps_of_a_chained_profile_are_among_those_that_are_killed(undisturbed: Campaign):
    """What KGC dealt is fetched and burnt, requests are reserved, the chain is kept."""
    steps = {role: " ".join(undisturbed.steps(role)) for role in ("csp", "sp", "person0")}
    assert all("dealt.fetch" in steps[role] and "dealt.burn" in steps[role] for role in ("csp", "sp"))
    assert "chain._keep" in steps["person0"]


def survive(campaign: Campaign, undisturbed: Campaign) -> None:
    """Its deaths come to pass and change nothing."""
    campaign.run()
    planned = [role for kills in (campaign.kills, campaign.armed) for role in kills for _ in kills[role]]
    assert sorted(campaign.deaths) == sorted(planned), "a step was not reached"
    outcome = Outcome(campaign.folder)
    outcome.check()
    outcome.require_same(Outcome(undisturbed.folder))
    shutil.rmtree(campaign.folder)


def survive_each(folder: Path, undisturbed: Campaign, chosen: Sequence[Point]) -> None:
    """Each of these deaths, in a campaign of its own."""
    failures = []
    for number, (role, kill) in enumerate(chosen):
        try:
            campaign = Campaign(folder / str(number), {role: [kill]}, settings=undisturbed.settings)
            survive(campaign, undisturbed)
        except (AssertionError, CrowdFLError) as failure:
            failures.append(f"{role} killed {kill}: {type(failure).__name__} {failure}")
    assert not failures, "\n".join(failures)


def survive_together(folder: Path, undisturbed: Campaign, chosen: Sequence[Point], campaigns: int = 1) -> None:
    """These deaths, spread over so many campaigns."""
    for number in range(campaigns):
        armed: dict[str, list[Kill]] = {}
        for role, kill in chosen[number::campaigns]:
            armed.setdefault(role, []).append(kill)
        survive(Campaign(folder / f"together{number}", armed=armed, settings=undisturbed.settings), undisturbed)


@pytest.mark.parametrize("shard", range(SHARDS))
def test_processes_killed_at_durable_steps_change_nothing(shard: int, whole: Campaign, tmp_path: Path):
    """The same averages, books, receipts and masked requests as if nobody had died."""
    survive_together(tmp_path, whole, sample(whole)[shard::SHARDS])


@pytest.mark.slow
@pytest.mark.parametrize("shard", range(SLOW_SHARDS))
def test_a_process_killed_at_any_durable_step_changes_nothing(shard: int, keyed: Campaign, tmp_path: Path):
    """Of the profile `hardened`; `tests/cut` has each step of `shares`."""
    every = [point for role in KILLED for point in points(keyed, role)]
    survive_each(tmp_path, keyed, every[shard::SLOW_SHARDS])


def test_uploads_in_pairs_share_a_commit_and_change_nothing(undisturbed: Campaign, tmp_path: Path):
    """So that what follows is about a group of them."""
    paired = Campaign(tmp_path / "campaign", in_pairs=True)
    paired.run()
    steps = {who: Counter(campaign.steps("sp")) for who, campaign in (("pair", paired), ("alone", undisturbed))}
    assert (steps["pair"][WRITTEN], steps["pair"][ACKNOWLEDGED]) == (4, 2)
    assert (steps["alone"][WRITTEN], steps["alone"][ACKNOWLEDGED]) == (4, 4)
    Outcome(paired.folder).require_same(Outcome(undisturbed.folder))


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(
    ("name", "time"),
    [
        pytest.param(WRITTEN, 2, id="file-2"),
        pytest.param(ACKNOWLEDGED, 1, id="commit-1"),
        *(pytest.param(WRITTEN, time, id=f"file-{time}", marks=pytest.mark.slow) for time in (1, 3, 4)),
        pytest.param(ACKNOWLEDGED, 2, id="commit-2", marks=pytest.mark.slow),
    ],
)
def test_an_sp_killed_amid_a_group_of_uploads_changes_nothing(
    name: str, time: int, after: bool, undisturbed: Campaign, tmp_path: Path
):
    """With one file of the group there and the other not, or all files and no acknowledgement."""
    survive(Campaign(tmp_path / "campaign", {"sp": [Kill(name, time, after)]}, in_pairs=True), undisturbed)


@pytest.mark.parametrize("thorough", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["sample", "all"])
def test_an_sp_killed_while_the_total_stays_hidden_changes_nothing(thorough: bool, keyed: Campaign, tmp_path: Path):
    """At the steps that only such a round has."""
    hidden = Campaign(tmp_path / "hidden", settings=HARDENED | {"total": "hidden"})
    hidden.run()
    Outcome(hidden.folder).check()
    shown = set(keyed.steps("sp"))
    own = [kill for _, kill in points(hidden, "sp") if kill.name not in shown]
    used = "sql.use_reply<csp_link._use"
    assert kinds(own, used, "blobs.put_all<blobs.put<kept_file.put_long<csp_link._keep", "csp_link.forget_replies") == {
        used: 4,  # CSP's answers: to the guard and its product, to the division, and the scaled sums
        "blobs.put_all<blobs.put<kept_file.put_long<csp_link._keep": 4,
        "csp_link.forget_replies": 2,  # the last round's answers stay until the task is settled: files and marks
    }
    if thorough:
        survive_each(tmp_path, hidden, [("sp", kill) for kill in own])
    else:
        survive_together(tmp_path, hidden, [("sp", kill) for kill in own if kill.time == 1][::3], HIDDEN_SHARDS)


def kinds(kills: Sequence[Kill], *parts: str) -> Counter[str]:
    """How many steps have each of these in their names; one that has none is counted by its own."""
    names = {kill.name for kill in kills}
    return Counter(next((part for part in parts if part in name), name) for name in names)


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 12))])
def test_all_processes_killed_again_and_again_change_nothing(seed: int, whole: Campaign, tmp_path: Path):
    """Each of them up to three times in one campaign, wherever it happens to be."""
    draw, kills = random.Random(seed), {}  # noqa: S311 -- no secret
    for role in KILLED:
        steps = sum(not idle(name) for name in whole.steps(role))
        lives = min(LIVES, steps)  # the operator has one thing to do
        kills[role] = [Kill(ANY, draw.randint(1, steps // lives), draw.random() < 0.5) for _ in range(lives)]
    survive(Campaign(tmp_path / "campaign", kills, settings=whole.settings), whole)
