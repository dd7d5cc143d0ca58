"""Payer: pays people what CSP attests, where they have said. On SP's word alone it takes what is marked so, and nothing else.

SP shows it documents that others have signed, and each is checked: the task, whose id its requester has told the payer; KGC's
appointment, by a KGC key that the payer knows, which names the key that CSP signs with; the participant's certificate, with the
requester's invitation; CSP's newest statement of what the participant has earned in all; the destination that it names.

A statement is of all so far, and what was paid before is taken off. Shown again, in another order or under another name, it
pays nothing twice; nothing goes to a destination that its owner has replaced. For unused uploads nobody but SP says what is
owed: the signed task says only how much each is, and that there is at most one in a round.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from crowdfl.crypto.sealing import ReaderKey
from crowdfl.documents.destination import Destination, destination_name, open_destination
from crowdfl.documents.invitations import admitted
from crowdfl.documents.signed import Appointment, Definition
from crowdfl.errors import BadSignature, CrowdFLError, PayoutRefused
from crowdfl.protocols.claims import PayStatement
from crowdfl.roles.records import payment_key
from crowdfl.settings import in_cents

Row = Mapping[str, str]
"""Of what SP lists: `roles.sp.operator.PAYMENT_COLUMNS`."""


@dataclass(frozen=True)
class Instalment:
    """What was handed over to be paid, and what that made in all."""

    key: str  # names it to the bank
    sequence: int  # of CSP's statement
    total: int  # millionths, as CSP attests
    unused: int  # uploads that SP says to be owed for
    counter: int
    destination: str  # the hash of the sealed one, in hex
    word: int  # millionths of all so far that are SP's word alone

    @property
    def all(self) -> int:
        return self.total + self.word


_NOTHING = Instalment("", 0, 0, 0, 0, "", 0)


@dataclass(frozen=True)
class Payout:
    """One payment to make."""

    instalment: Instalment
    before: Instalment
    to: Destination = field(repr=False)
    currency: str
    sp_key: str  # what SP calls it, for the answer alone

    def row(self) -> dict[str, str]:
        """The cents of all so far, less those of all before: no part of a cent is lost."""
        now, before = self.instalment, self.before
        amount = in_cents(now.all) - in_cents(before.all)
        word = in_cents(now.word) - in_cents(before.word)
        money = {"key": now.key, "amount": f"{amount:f}", "currency": self.currency, "on_sp_word": f"{word:f}"}
        where = {"kind": self.to.way, "to": self.to.to, "task": self.to.task, "participant": self.to.who}
        return money | where | {"sp_key": self.sp_key}


COLUMNS = ("key", "amount", "currency", "on_sp_word", "kind", "to", "task", "participant", "sp_key")


@dataclass
class PayerRecord:
    """Whom the payer believes, and what it has handed over: by task and participant, in order."""

    kgc: list[str] = field(default_factory=list)  # keys, in hex
    tasks: list[str] = field(default_factory=list)
    paid: dict[str, dict[str, list[Instalment]]] = field(default_factory=dict)

    def of(self, task: str, who: str) -> Sequence[Instalment]:
        return self.paid.get(task, {}).get(who, ())

    def add(self, task: str, who: str, instalment: Instalment) -> None:
        self.paid.setdefault(task, {}).setdefault(who, []).append(instalment)

    def undo(self, task: str, who: str, key: str) -> None:
        """Of an instalment that was not paid after all: what comes next pays it too. The last alone: a later one was counted
        from it."""
        made = self.paid.get(task, {}).get(who, [])
        if key not in [one.key for one in made]:  # it was undone before
            return
        if made[-1].key != key:
            raise PayoutRefused(f"{key} is not the last payment of {who}: what was handed over after it counts from it")
        made.pop()

    def body(self) -> dict[str, Any]:
        paid = {
            task: {who: [vars(one) for one in found] for who, found in people.items()}
            for task, people in self.paid.items()
        }
        return {"kgc": self.kgc, "tasks": self.tasks, "paid": paid}

    @classmethod
    def read(cls, body: Mapping[str, Any]) -> Self:
        paid = {
            task: {who: [Instalment(**one) for one in found] for who, found in people.items()}
            for task, people in body["paid"].items()
        }
        return cls(list(body["kgc"]), list(body["tasks"]), paid)


@dataclass(frozen=True)
class Papers:
    """A task as its requester and KGC have signed it."""

    definition: Definition
    kgc_key: bytes
    csp_key: bytes

    @classmethod
    def checked(cls, row: Row, record: PayerRecord, own: bytes) -> "Papers":
        definition = Definition.open(row["definition"])
        if definition.task != row["task"]:
            raise PayoutRefused("SP shows it with the papers of another task")
        if definition.task not in record.tasks:
            raise PayoutRefused("its requester has not told you to pay for this task: `crowdfl payer task` says so")
        if definition.payer != own:
            raise PayoutRefused("this task names another payer")
        for key in map(bytes.fromhex, record.kgc):
            try:
                appointment = Appointment.open(row["appointment"], key)
            except BadSignature:
                continue
            if appointment.task != definition.task or not appointment.csp:
                raise PayoutRefused("KGC's appointment is of another task, or names no key of CSP's")
            return cls(definition, key, bytes.fromhex(appointment.csp))
        raise PayoutRefused("no KGC that you know has appointed this task: `crowdfl payer know` takes its public part")


@dataclass(frozen=True)
class Due:
    """What is owed to somebody in all, every signature checked."""

    statement: PayStatement
    unused: int
    word: int  # millionths of those
    to: Destination = field(repr=False)
    sp_key: str

    @property
    def age(self) -> tuple[int, int]:
        return self.statement.sequence, self.unused

    @classmethod
    def checked(cls, row: Row, papers: Papers, key: ReaderKey) -> "Due":
        definition = papers.definition
        task = papers.definition.task
        admission = admitted(row["certificate"], papers.kgc_key, definition)
        who = admission.identity.who
        said = PayStatement.open(bytes.fromhex(row["statement"]), papers.csp_key)
        if (said.task, said.participant) != (task, who) or (row["task"], row["participant"]) != (task, who):
            raise PayoutRefused("SP shows what was signed for another task or participant")
        if said.currency != definition.settings.currency or row["currency"] != said.currency:
            raise PayoutRefused(f"this task is paid in {definition.settings.currency}, and in nothing else")
        if said.sequence < said.counter:
            raise PayoutRefused("CSP's statement makes no sense: tell its operator")
        if said.total > definition.settings.most_earned:
            raise PayoutRefused("CSP attests more than anybody can earn in this task: ask its operator")
        sealed = bytes.fromhex(row["destination"])
        if destination_name(sealed) != said.destination:
            raise PayoutRefused("this destination is not the newest that its owner has named in a claim")
        unused = int(row["unused"])
        word = int(row["unused_millionths"])
        most = definition.plan.each_unused
        if not 0 <= unused <= definition.settings.rounds or not 0 <= word <= unused * most:
            raise PayoutRefused(
                "SP names more unused uploads than the task has rounds, or more for one than the task pays"
            )
        to = open_destination(key, sealed, task, who, said.counter)
        return cls(said, unused, word, to, row.get("key", ""))


@dataclass(frozen=True)
class Refusal:
    """A row that is not paid."""

    row: Row
    why: Exception


@dataclass
class Payer:
    """What it pays of what SP shows, by its own record. Whoever calls keeps the record before anything is paid."""

    key: ReaderKey
    record: PayerRecord
    _papers: dict[str, Papers] = field(default_factory=dict, repr=False)

    def take(
        self, rows: Iterable[Row], papers: Iterable[Row], *, again: bool = False
    ) -> tuple[list[Payout], list[Refusal]]:
        """What is to be paid now, noted in the record; a task's papers are in one of its rows, due or not.

        `again`: also all that these people were to be paid before, under its old keys, for a bank that pays each key once.
        """
        newest, refused = dict[tuple[str, str], Due](), list[Refusal]()
        signed = {row["task"]: row for row in papers if row.get("definition")}
        for row in rows:
            try:
                found = Due.checked(row, self._papers_of(row["task"], signed), self.key)
            except (CrowdFLError, KeyError, ValueError) as wrong:
                refused.append(Refusal(row, wrong))
                continue
            place = found.statement.task, found.statement.participant
            if place not in newest or newest[place].age <= found.age:  # of one person SP lists the last payment last
                newest[place] = found
        payouts = []
        for (task, who), due in newest.items():
            try:
                payouts += self._pay(due, again=again)
            except PayoutRefused as wrong:
                refused.append(Refusal({"task": task, "participant": who}, wrong))
        return payouts, refused

    def _papers_of(self, task: str, signed: Mapping[str, Row]) -> Papers:
        if task not in signed:
            raise PayoutRefused("the papers of its task are not in this list")
        if task not in self._papers:
            self._papers[task] = Papers.checked(signed[task], self.record, self.key.public)
        return self._papers[task]

    def _pay(self, due: Due, *, again: bool) -> list[Payout]:
        said = due.statement
        task, who = said.task, said.participant
        done = self.record.of(task, who)
        before = done[-1] if done else _NOTHING
        _require_newer(said, before)
        made = [
            Payout(one, earlier, due.to, said.currency, "")
            for earlier, one in zip((_NOTHING, *done), done, strict=False)
        ]
        unused = max(due.unused, before.unused)  # an SP that was restored may have forgotten some
        attested = said.sequence - said.counter  # rounds
        word = max(due.word, before.word)
        key = payment_key(task, who, attested + unused)
        where = said.destination.hex()
        now = Instalment(key, said.sequence, said.total, unused, said.counter, where, word)
        payout = Payout(now, before, due.to, said.currency, due.sp_key)
        if in_cents(now.all) == in_cents(before.all):  # what is less than a cent is paid with the next
            return made if again else []
        self.record.add(task, who, now)
        return [*made, payout] if again else [payout]


def _require_newer(said: PayStatement, before: Instalment) -> None:
    """CSP's word only ever grows, and a counter has one destination."""
    where = said.counter, said.destination.hex()
    if said.sequence < before.sequence or where[0] < before.counter:
        raise PayoutRefused("SP shows an older statement of CSP's than you have paid by: ask it for the newest")
    is_same = said.sequence == before.sequence
    if said.total < before.total or (is_same and said.total != before.total):
        raise PayoutRefused("CSP has signed two totals that do not fit each other: ask its operator")
    if before.key and where[0] == before.counter and where[1] != before.destination:
        raise PayoutRefused("CSP has signed two destinations of one counter: ask its operator")
