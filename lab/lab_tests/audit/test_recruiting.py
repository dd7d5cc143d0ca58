"""SP in a task that it lists: what it reads of whoever joins all the same, and that a phone does not by itself."""

from crowdfl_lab.audit.finding import SHARES, Verdict
from crowdfl_lab.audit.recruiting import attack_recruited


def test_sp_alone_reads_whoever_joins_all_the_same():
    weakened, built = attack_recruited()
    assert (weakened.verdict, built.verdict) == (Verdict.BROKEN, Verdict.GUESS)
    assert weakened.subject != SHARES == built.subject
    assert weakened.error < 1e-5
    assert weakened.recovered.startswith("6 of 6")
    assert built.recovered == "the phone does not join: TooFewParticipants"
