"""What the demo says while it runs: what it waits for, and for how long."""

import sys

from crowdfl_lab.demo.campaign import training_seconds, waits
from crowdfl_lab.demo.processes import stage, task_file


def status(state="running", *rounds, left=None):
    found = [
        {"number": number, "state": state, "uploads": uploads, "last_call": 110.0} for number, state, uploads in rounds
    ]
    return {"state": state, "enrolled": 9, "rounds": found, "claim_seconds_left": left}


def test_what_is_waited_for_is_said_with_seconds_where_they_are_known():
    told = ["".join(stage(one, 10, now, {(1, "closed"): 5.0, (1, "rewarded"): 47.0})) for now, one in (
        (0.0, status()),
        (88.0, status("running", (1, "open", 3))),
        (104.0, status("running", (1, "open", 8))),
        (0.0, status("running", (1, "closed", 9))),
        (0.0, status("running", (1, "rewarded", 9), (2, "weighed", 8))),
        (0.0, status("finished", (2, "rewarded", 8), left=14.6)),
        (0.0, status("settled", (2, "rewarded", 8))),
    )]  # fmt: skip
    assert told == [
        "9 of 10 have joined",
        "round 1: 3 of 9 uploads have come; late ones count too, for 22 s, or until all have come",
        "round 1: 8 of 9 uploads have come; late ones count too, for 6 s, or until all have come",
        "round 1: SP and CSP compute the average and the rewards of 9",
        "round 2: SP and CSP compute the average and the rewards of 8; that took 42 s in round 1",
        "finished; people claim their rewards for another 15 s",
        "settled: what nobody claimed has gone back to the requester",
    ]


def test_rounds_wait_as_long_as_training_takes_here_and_need_no_torch(monkeypatch):
    """Seconds on a quick machine; on one that is ten times as slow, or as busy, ten times as long."""
    monkeypatch.setitem(sys.modules, "torch", None)
    assert training_seconds(task_file("shares", {}), "watch:0") > 0
    told = [[waits(unit)[name] for name in ("window", "late", "claim_window")] for unit in (0.05, 1.0)]
    assert told == [["5 s", "5 s", "15 s"], ["50 s", "50 s", "150 s"]]
