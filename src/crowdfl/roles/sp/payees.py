"""Where people are paid: kept by person, with CSP's newest statement, and the payer checks both."""

from collections.abc import Callable
from dataclasses import replace

from crowdfl.documents.destination import destination_name
from crowdfl.errors import (
    Conflict,
)
from crowdfl.protocols.claims import PayStatement
from crowdfl.roles.ports import SpStore
from crowdfl.roles.records import (
    PaymentState,
    TaskState,
)


def keep_statement(store: SpStore, said: PayStatement) -> None:
    """CSP's newest word for the payer, and the destination that it names, if that is here. The caller holds a transaction."""
    known = store.payee(said.task, said.participant)
    named = said.destination
    if said.sequence >= known.sequence:
        here = [one for one in (known.offered, known.destination) if one and destination_name(one) == named]
        where = here[0] if here else b""
        newer = replace(known, statement=said.to_bytes(), sequence=said.sequence, named=named, destination=where)
        store.change_payee(known, newer)


def offer_destination(store: SpStore, task: str, who: str, sealed: bytes) -> None:
    """Where somebody wants to be paid, sealed to the payer; what is paid goes there once CSP's statement names it."""
    with store.transaction():
        known = store.payee(task, who)
        is_over = store.task(task).state == TaskState.SETTLED
        if _is_paid_out(store, task, who) or (is_over and known.named != destination_name(sealed)):
            raise Conflict(
                "claims have ended: what this task owes you goes where you last said in one, and nowhere else"
            )
        here = sealed if known.named == destination_name(sealed) else known.destination
        store.change_payee(known, replace(known, offered=sealed, destination=here))


def erase_destination(store: SpStore, task: str, who: str) -> None:
    """Once the task will pay its owner nothing more. The caller holds a transaction."""
    known = store.payee(task, who)
    if (known.offered or known.destination) and _is_paid_out(store, task, who):
        store.change_payee(known, replace(known, offered=b"", destination=b""))


def _is_paid_out(store: SpStore, task: str, who: str) -> bool:
    is_over = store.task(task).state == TaskState.SETTLED
    return is_over and all(one.state is PaymentState.PAID for one in store.instalments(task, who))


def waits_for_destination(store: SpStore, task: str) -> Callable[[str], bool]:
    """Of whom the payer does not know yet where to pay: nobody, where nobody is asked."""
    if not store.task(task).opened.payer:
        return lambda _who: False
    ready = {who for who, known in store.payees(task).items() if known.destination}
    return lambda who: who not in ready
