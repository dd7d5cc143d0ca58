"""Two processes of SP on the same files and behind the same address: as good as one."""

from collections import Counter
from pathlib import Path

from tests.faults.durable import idle
from tests.faults.outcome import Outcome
from tests.faults.supervisor import Campaign

TWO_SPS = ("kgc", "csp", "sp", "sp+2")


def work(campaign: Campaign, *roles: str) -> Counter[str]:
    """What processes made durable between them, apart from starting, from looking around, from the last step, and from leases
    renewed while a slow CSP is waited for.

    The last step comes when the clock is put far forward, in the midst of whatever lease is held.
    """
    steps = [name for role in roles for name in campaign.steps(role) if not idle(name)]
    chance = ("settlement.settle", "core.renew_lease<csp_link.reply")
    return Counter(
        name
        for name in steps
        if not name.startswith(("run.", "signing.", "migrations.")) and not any(c in name for c in chance)
    )


def test_two_sps_at_once_do_no_work_twice(undisturbed: Campaign, tmp_path: Path):
    """Every durable step is taken as often as by one alone, and CSP is asked nothing twice."""
    campaign = Campaign(tmp_path / "campaign", servers=TWO_SPS)
    campaign.run()
    outcome = Outcome(campaign.folder)
    outcome.check()
    outcome.require_same(Outcome(undisturbed.folder))
    assert work(campaign, "sp", "sp+2") == work(undisturbed, "sp")
    assert outcome.asked() == Outcome(undisturbed.folder).asked()
