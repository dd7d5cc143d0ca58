"""Two processes of one role on the same files and behind the same address: as good as one, and as good when one dies."""

from collections import Counter
from pathlib import Path

import pytest

from tests.faults.durable import Kill, idle
from tests.faults.outcome import Outcome
from tests.faults.supervisor import Campaign

TWO_SPS = ("kgc", "csp", "sp", "sp+2")
TWO_CSPS = ("kgc", "csp", "csp+2", "sp")
DEATHS = [
    "sql.lease<core.renew_lease<csp_link.ask<exchange.run_exchange<round._run<round.reward",
    "csp_link.ask<exchange.run_exchange",
    "rounds._set<rounds._weigh<",
    "rounds._set<rounds.publish<",
]


def work(campaign: Campaign, *roles: str) -> Counter[str]:
    """What processes made durable between them, apart from starting, from looking around, from the last step, and from leases
    renewed while a slow CSP is waited for.

    Both may start at one moment, and then name the folder at once: one of them does.
    The last step comes when the clock is put far forward, in the midst of whatever lease is held.
    """
    steps = [name for role in roles for name in campaign.steps(role) if not idle(name)]
    chance = ("settlement.settle", "core.renew_lease<csp_link.reply", "<run.__init__")
    return Counter(
        name
        for name in steps
        if not name.startswith(("run.", "signing.", "migrations.")) and not any(c in name for c in chance)
    )


def dying_once(folder: Path, undisturbed: Campaign, role: str, where: str, time: int) -> dict[str, list[Kill]]:
    """A death for whichever of two processes gets there first."""
    name = next(name for name in undisturbed.steps(role) if name.startswith(where))
    token = folder / "token"
    token.touch()
    return {each: [Kill(name, time, True, token)] for each in (role, f"{role}+2")}


def finish(campaign: Campaign, undisturbed: Campaign) -> Outcome:
    campaign.run()
    outcome = Outcome(campaign.folder)
    outcome.check()
    outcome.require_same(Outcome(undisturbed.folder))
    return outcome


def test_two_sps_at_once_do_no_work_twice(undisturbed: Campaign, tmp_path: Path):
    """Every durable step is taken as often as by one alone, and CSP is asked nothing twice."""
    campaign = Campaign(tmp_path / "campaign", servers=TWO_SPS)
    outcome = finish(campaign, undisturbed)
    assert work(campaign, "sp", "sp+2") == work(undisturbed, "sp")
    assert outcome.asked() == Outcome(undisturbed.folder).asked()


@pytest.mark.parametrize("where", [DEATHS[0], *(pytest.param(where, marks=pytest.mark.slow) for where in DEATHS[1:])])
def test_an_sp_that_dies_for_good_leaves_its_work_to_the_other(where: str, undisturbed: Campaign, tmp_path: Path):
    """With the lease in its hands: once that has run out, the other takes the same step with the same masks."""
    kills = dying_once(tmp_path, undisturbed, "sp", where, 1)
    campaign = Campaign(tmp_path / "campaign", kills, servers=TWO_SPS, restarts=False)
    finish(campaign, undisturbed)
    assert len(campaign.deaths) == 1


@pytest.mark.parametrize("time", [5, *(pytest.param(time, marks=pytest.mark.slow) for time in (1, 2, 3, 4, 6, 7, 8))])
def test_a_csp_that_dies_for_good_leaves_its_memory_to_the_other(time: int, undisturbed: Campaign, tmp_path: Path):
    """In the middle of a round's rewards: what one has answered and remembers, the other knows."""
    kills = dying_once(tmp_path, undisturbed, "csp", "csp._answered<", time)
    campaign = Campaign(tmp_path / "campaign", kills, servers=TWO_CSPS, restarts=False)
    finish(campaign, undisturbed)
    assert len(campaign.deaths) == 1
    assert all(work(campaign, role) for role in ("csp", "csp+2"))
