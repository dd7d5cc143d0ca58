"""An SP that has its payer pay one claim again, and in another currency."""

from collections.abc import Iterator

import numpy as np

from crowdfl.crypto.compute import Threads
from crowdfl.crypto.sealing import ReaderKey
from crowdfl.documents.signed import Definition
from crowdfl.learning.models.shape import ModelShape
from crowdfl.protocols.profile import Tools
from crowdfl.roles.payer import Payer, PayerRecord
from crowdfl.roles.sp.operator import payment_rows
from crowdfl.settings import TaskSettings, to_millionths
from crowdfl.simulation.host import Host
from crowdfl_lab.audit.finding import SHARES, Attack, Finding, Measure, difference
from crowdfl_lab.audit.shares.deviating_round import weakened

_PAID = Measure[float](
    difference, "millionths below twice what was attested; blind: nothing is paid that was not attested"
)
_AGAIN = Attack("one claim again", "new", "the payer's money, by showing one claim three times", ("SP",), _PAID)


def attack_payer() -> Iterator[Finding]:
    """In one list under other keys, in two more lists, and as pounds."""
    for subject in ("shares, a payer that keeps no record", SHARES):
        with weakened(subject, (PayerRecord, "of", lambda *_: ())):
            yield _scored(subject)


def _scored(subject: str) -> Finding:
    payer, kgc, row = _claimed()
    record = PayerRecord([kgc], [row["task"]])
    shown = ([row, row | {"key": "0" * 32}], [row | {"key": "1" * 32}], [row | {"attempts": "3"}])
    lists = (*shown, [row | {"currency": "GBP"}])
    paid = [one.row() for rows in lists for one in Payer(payer, record).take(rows, rows)[0]]
    attested = to_millionths(row["amount"])
    gained = sum(to_millionths(one["amount"]) for one in paid) - attested
    currencies = " and ".join(sorted({one["currency"] for one in paid}))
    note = f"{len(paid)} payments in {currencies}"
    return _AGAIN.score(subject, gained, 0, 2 * attested, f"{gained} of {2 * attested} millionths", note)


def _claimed() -> tuple[ReaderKey, str, dict[str, str]]:
    """What an honest SP shows of a person who has claimed a round, KGC's key, and the payer's own."""
    payer, host = ReaderKey.fresh(), Host(Tools(Threads(1)))
    host.options.payer = host.requester.payer = payer.public
    settings = TaskSettings.of(
        profile=SHARES, weighting="equal", lanes=128, max_norm=3.0, rounds=1, budget="3.00", pay="equal", currency="INR"
    )
    shape, initial = ModelShape.of({"w": np.zeros(8)}), [np.zeros(8)]
    task = host.create(Definition("t", "t", "t", shape, settings, 10**6, {}), initial)
    people = [host.join(task, f"p{place}") for place in range(3)]
    host.requester.fund(task, to_millionths("3.00"), "all")
    host.confirm_deposits(task)
    host.run()
    for person in people:
        person.step(lambda base, *_: (base, 1))
    host.run()
    phone = people[0]
    phone.pay_to("email", "ann@example.org")
    phone.claim()
    store = host.sp.store
    (shown,) = payment_rows(store, store.instalments(task, phone.keys.who))
    return payer, phone.kgc_key.hex(), {name: str(value) for name, value in shown.items()}
