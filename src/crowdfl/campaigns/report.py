"""A campaign's report: who took part, consent, accuracy, money, what each party learnt and what went wrong.

Of one object: text for a terminal, tables for a notebook, and a page to print (`report_page.py`), in each language of the
consoles. It counts people and names nobody, and says what is not known.
"""

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property
from typing import Any, Self

from crowdfl.campaigns.report_page import ReportTable, Section, notebook_html, page_html
from crowdfl.catalogues import Sentences
from crowdfl.disclosures import learnt_in
from crowdfl.documents.signed import Definition
from crowdfl.roles.requester import Requester
from crowdfl.settings import from_millionths, in_cents, to_millionths

_SUMS = ("pending", "paid_in", "offered", "earned", "attested", "sp_word", "returned")
_SHOWN = ("pending", "paid_in", "offered", "earned", "returned")  # of each task that pays, also where they are 0
_DATES = 6  # of withdrawals, that are listed
Row = Mapping[str, Any]


@dataclass(frozen=True, repr=False)
class TaskReport:
    """What came of a task, for people. Printed it is text; as the last line of a notebook's cell it is tables.

    Attributes:
        definition: What was signed.
        status: Where it stands, as SP says it.
        books: Sums in millionths, movements and deposits, as `Requester.report` has them.
        turnout: By round, how many were asked and sent; who has joined, by the name in the task.
        consents: Who agreed to which version of the consent text.
        scores: The requester's last evaluation; None: there is none.
        made_at: When this was asked, in seconds since 1970.
    """

    definition: Definition = field(repr=False)
    status: Row = field(repr=False)
    books: Row = field(repr=False)
    turnout: Mapping[str, Sequence[Row]] = field(repr=False)
    consents: Sequence[Row] = field(repr=False)
    scores: Row | None = field(repr=False)
    made_at: float

    @classmethod
    def of(cls, requester: Requester, task: str) -> Self:
        """As the servers say it now."""
        definition, sp = requester.definition(task), requester.sp
        seen = sp.status(task), requester.report(task), sp.compliance(task), sp.consents(task)
        return cls(definition, *seen, requester.scores(task), requester.clock.now())

    @property
    def task(self) -> str:
        """The task's id."""
        return str(self.status["task"])

    @property
    def state(self) -> str:
        """ "running", "paused", "cancelled", "finished", or "settled", once all claims are through."""
        return str(self.status["state"])

    @property
    def people(self) -> int:
        """How many take part."""
        return int(self.status["enrolled"])

    @property
    def rounds(self) -> tuple[dict[str, Any], ...]:
        """For each round its `number`, `state` and `uploads`."""
        return tuple({name: one[name] for name in ("number", "state", "uploads")} for one in self.status["rounds"])

    @property
    def currency(self) -> str:
        """Of all amounts."""
        return self.definition.settings.currency

    @property
    def pending(self) -> Decimal:
        """Announced, and not confirmed by the platform's operator yet."""
        return from_millionths(self.books["pending"])

    @property
    def paid_in(self) -> Decimal:
        """Confirmed."""
        return from_millionths(self.books["paid_in"])

    @property
    def offered(self) -> Decimal:
        """For rounds that were rewarded."""
        return from_millionths(self.books["offered"])

    @property
    def earned(self) -> Decimal | None:
        """By everyone together; None until all claims are through: before, it would show single ones."""
        return self._known("earned")

    @property
    def returned(self) -> Decimal:
        """To the requester."""
        return from_millionths(self.books["returned"])

    @property
    def attested(self) -> Decimal | None:
        """What CSP has signed of all claims; None until they are through."""
        return self._known("attested")

    def _known(self, name: str) -> Decimal | None:
        amount = self.books[name]
        return None if amount is None else from_millionths(amount)

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        return f"<TaskReport: {self.state}>\n{self}"

    def _repr_html_(self) -> str:
        words = _Words(self, "en")
        return notebook_html(words.title, words.sections())

    def text(self, language: str = "en") -> str:
        """For a terminal."""
        words = _Words(self, language)
        return "\n\n".join([words.title, *(section.text() for section in words.sections())])

    def html(self, language: str = "en", more: str = "") -> str:
        """One page that needs no other file, to be read or printed; `more` is HTML of who calls, at its end."""
        words = _Words(self, language)
        return page_html(words.title, language, words.sections(), more, kind=words.say("report.title"))

    def values(self) -> dict[str, Any]:
        """For programs: the sums, and all that the report is made of."""
        about = {"task": self.task, "state": self.state, "status": dict(self.status), "made_at": self.made_at}
        return {**self.books, **about, **self.turnout, "consents": list(self.consents), "scores": self.scores}


@dataclass(frozen=True)
class _Words:
    """One report in one language."""

    report: TaskReport
    language: str

    @cached_property
    def say(self) -> Sentences:
        return Sentences(self.language, "report")

    @property
    def title(self) -> str:
        return self._texts("purpose") or self.say("report.noPurpose")

    def _texts(self, name: str) -> str:
        """As the task says it in this language, where it does."""
        definition = self.report.definition
        own = definition.texts.get(self.language)
        return (own and getattr(own, name)) or str(getattr(definition, name))

    def sections(self) -> list[Section]:
        makers = (self._about, self._people, self._consent, self._accuracy, self._money, self._wrong, self._learnt)
        return [*(make() for make in makers), *self._movements()]

    def _about(self) -> Section:
        say, report = self.say, self.report
        definition, settings = report.definition, report.definition.settings
        who = definition.who
        opened = [one["opened"] for one in report.turnout["rounds"]]
        counts = {"count": settings.rounds, "least": settings.min_participants, "most": settings.max_participants}
        shape = {"profile": settings.profile, "parameters": definition.spec.parameters}
        facts = {
            "asker": ", ".join(part for part in (who.name, who.institution) if part),
            "contact": who.contact,
            "approval": who.approval,
            "task": report.task,
            "state": say(f"state.{report.state}"),
            "plan": say("report.planned", **counts, **shape),
            "held": say("report.from", when=_moment(opened[0])) if opened else say("report.noRound"),
        }
        if settings.epsilon is not None:
            epsilon, delta = (say.decimal(f"{value:g}") for value in (settings.epsilon, settings.delta or 1e-5))
            facts["noise"] = say("report.epsilon", epsilon=epsilon, delta=delta)
        shown = [(say(f"report.{name}"), fact) for name, fact in facts.items() if fact]
        return Section("", [say("report.made", when=_moment(report.made_at))], facts=shown, wide=True)

    def _people(self) -> Section:
        say, turnout = self.say, self.report.turnout
        joined = [one for one in turnout["people"] if one["state"] != "replaced"]
        listed = sum(one["came"] == "listed" for one in joined)
        names = ("round", "opened", "state", "asked", "sent", "missing", "leftOut", "averaged")
        rows = [[self._written(cell) for cell in self._round(one)] for one in turnout["rounds"]]
        table = ReportTable(say("people.rounds"), [say(f"people.{name}") for name in names], rows, {0, 3, 4, 5, 6, 7})
        words = say("people.joined", count=len(joined), invited=len(joined) - listed, listed=listed)
        return Section(say("people.title"), [words], [table] if rows else [], note=say("people.meaning"), wide=True)

    def _round(self, one: Row) -> list[object]:
        out, done = sum(one["left_out"].values()), one["state"] in ("rewarded", "published")
        state = self.say(f"state.{one['state']}")
        counts = one["asked"], one["sent"], one["missing"], out, one["sent"] - out if done else 0
        return [one["number"], _moment(one["opened"]), state, *counts]

    def _consent(self) -> Section:
        say = self.say
        title = say("consent.title")
        if not self.report.definition.consent.version:
            return Section(title, [say("consent.none")])
        found: dict[tuple[str, str], list[Row]] = {}
        for one in self.report.consents:
            if one["state"] != "replaced":  # the person has agreed once more, on the other phone
                language = one["language"] or self.report.definition.language
                found.setdefault((one["version"], language), []).append(one)
        if not found:
            return Section(title, [say("consent.empty")])
        rows = []
        for (version, language), agreed in sorted(found.items()):
            times = [one["received"] for one in agreed]
            gone = sum(one["withdrawn"] is not None for one in agreed)
            cells = (version, language, len(agreed), gone, _day(min(times)), _day(max(times)))
            rows.append([self._written(cell) for cell in cells])
        names = ("version", "language", "agreed", "withdrawn", "first", "last")
        table = ReportTable(say("consent.versions"), [say(f"consent.{name}") for name in names], rows, {2, 3})
        return Section(title, [], [table], note=say("consent.signed"))

    def _accuracy(self) -> Section:
        say, scores = self.say, self.report.scores
        title = say("accuracy.title")
        if not scores:
            return Section(title, [say("accuracy.none")])
        rounds = {int(number): found for number, found in scores["rounds"].items()}
        words = say(
            "accuracy.on",
            when=_moment(scores["at"]),
            count=max(found["windows"] for found in rounds.values()),
            data=", ".join(map(_short, scores["data"])),
        )
        labels = list(dict.fromkeys(label for found in rounds.values() for label in found["classes"]))
        own = self.report.definition.texts.get(self.language)
        spoken = [own.words.get(label, label) if own else label for label in labels]
        rows = []
        for number, found in sorted(rounds.items()):
            shares = [found["classes"][label]["recall"] if label in found["classes"] else None for label in labels]
            rows.append([str(number), *(self._percent(share) for share in (found["accuracy"], *shares))])
        columns = [say("accuracy.round"), say("accuracy.accuracy"), *spoken]
        table = ReportTable(say("accuracy.rounds"), columns, rows, set(range(len(columns))))
        return Section(title, [words], [table], note=say("accuracy.meaning"))

    def _money(self) -> Section:
        say, books, settings = self.say, self.report.books, self.report.definition.settings
        title = say("money.title")
        if settings.budget is None:
            return Section(title, [say("money.none")])
        pay = settings.pay or ("equal" if settings.profile == "shares" else "distance")
        rule = say(f"money.{pay}", **{n: self._price(getattr(settings, n)) for n in ("each", "budget")})
        bonus = [say("money.bonus", bonus=self._price(settings.bonus))] if settings.bonus is not None else []
        rows = []
        for name in _SUMS:
            amount = books[name]
            if amount or name in _SHOWN:
                rows.append([say(f"money.{name}"), say("money.later") if amount is None else self._amount(amount)])
        table = ReportTable(say("money.sums"), [say("money.what"), say("money.amount")], rows, {1})
        claims = [say("money.claims")] if books["earned"] is None else []
        lines, warnings = [" ".join([rule, *bonus]), *claims], []
        if books["difference"]:
            code = "money.paidMore" if books["difference"] > 0 else "money.paidLess"
            warnings.append(say(code, amount=self._amount(abs(books["difference"]))))
        elif books["attested"] is not None:
            lines.append(say("money.agrees"))
        if books["attested"] is not None and not books["attested_complete"]:
            warnings.append(say("money.incomplete"))
        return Section(title, lines, [table], note=say("money.limits"), warnings=warnings)

    def _learnt(self) -> Section:
        say, definition = self.say, self.report.definition
        rows = []
        for row in learnt_in(definition.settings.profile, recruits=definition.recruits):
            if row.id not in self._idle:
                usual, hidden = f"party.{row.id}", f"hidden.{row.key}"
                other = f"{usual}Recruiting"
                party = other if definition.recruits and say.knows(other) else usual
                rows.append([say(party), say(f"learnt.{row.key}"), say(hidden) if say.knows(hidden) else ""])
        columns = [say(f"disclosed.{name}") for name in ("party", "learns", "hidden")]
        table = ReportTable(say("disclosed.title"), columns, rows, prose=True)
        return Section(
            say("disclosed.title"), [say("disclosed.about", profile=definition.settings.profile)], [table], wide=True
        )

    @property
    def _idle(self) -> set[str]:
        """The parties that a task of these settings has not."""
        definition = self.report.definition
        return {
            *(["sensors"] if not definition.training.get("sensors") else []),
            *(["payer"] if not definition.payer else []),
        }

    def _wrong(self) -> Section:
        say = self.say
        lines = [*self._ending(), *self._rounds_wrong(), *self._people_wrong()]
        return Section(say("wrong.title"), [] if lines else [say("wrong.none")], items=lines)

    def _ending(self) -> Iterator[str]:
        ended = self.report.status["ended"]
        if ended and ended["why"] != "settled":
            how = self.say(f"ending.{ended['why']}", by=self.say(f"by.{ended['by']}"))
            if ended["reason"]:
                how = self.say("ending.because", how=how, reason=ended["reason"])
            yield self.say("wrong.ended", how=how)

    def _rounds_wrong(self) -> Iterator[str]:
        for one in self.report.turnout["rounds"]:
            number = one["number"]
            if one["state"] == "aborted":
                yield self.say("wrong.void", round=number, count=one["sent"], why=self._why(one["void"]))
            for why, count in one["left_out"].items():
                yield self.say("wrong.leftOut", round=number, count=count, why=self._why(why))

    def _why(self, code: str | None) -> str:
        found = [key for key in (f"why.{code}", f"void.{code}") if self.say.knows(key)]
        return self.say(found[0] if found else "wrong.unknown")

    def _people_wrong(self) -> Iterator[str]:
        people = self.report.turnout["people"]
        states = Counter(one["state"] for one in people)
        there = [one for one in people if one["state"] == "in" and one["missing"]]
        over = {one["number"] for one in self.report.turnout["rounds"] if one["state"] != "open"}
        missed = [one for one in there if over & set(one["missing"])]
        never = [one for one in missed if not one["sent"]]
        stopped = [one for one in missed if one["sent"] and max(over & set(one["missing"])) > max(one["sent"])]
        some = len(missed) - len(never) - len(stopped)
        dates = sorted(_day(one["withdrawn"]) for one in people if one["withdrawn"] is not None)
        more = ["…"] if len(dates) > _DATES else []
        counts = {"withdrawn": len(dates), **{name: states[name] for name in ("replaced", "left", "freed")}}
        counts |= {"dropped": len(stopped), "never": len(never), "missed": some}
        for name, count in counts.items():
            if count:
                yield self.say(f"wrong.{name}", count=count, dates=", ".join(dates[:_DATES] + more))

    def _movements(self) -> list[Section]:
        """All that the books show; on a page it is folded, and not printed."""
        say, books = self.say, self.report.books
        waiting = [one for one in books["deposits"] if one["state"] != "confirmed"]
        rows = [
            [say("books.deposit", name=one["name"], state=say(f"state.{one['state']}")), "", "", one["amount"]]
            for one in waiting
        ]
        rows += [[one["name"], one["source"], one["target"], one["amount"]] for one in books["movements"]]
        if not rows:
            return []
        columns = [say(f"books.{name}") for name in ("name", "from", "to", "amount")]
        table = ReportTable(say("books.title"), columns, [[*row[:3], self._amount(row[3])] for row in rows], {3})
        return [Section(say("books.title"), [say("books.about")], [table], folded=True)]

    def _amount(self, millionths: int) -> str:
        return f"{self.say.decimal(f'{in_cents(millionths):,f}')} {self.report.currency}"

    def _price(self, amount: str | int | Decimal | None) -> str:
        return self._amount(to_millionths(amount or 0))

    def _percent(self, share: float | None) -> str:
        return "-" if share is None else f"{self.say.decimal(f'{100 * share:.1f}')}%"

    def _written(self, cell: object) -> str:
        return self.say.written(cell)


def _moment(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.gmtime(at))


def _day(at: float) -> str:
    return time.strftime("%Y-%m-%d", time.gmtime(at))


def _short(spec: str) -> str:
    """Without the folders of the requester's machine."""
    kind, _, place = spec.partition(":")
    return f"{kind}:{place.rstrip('/').rpartition('/')[2]}"
