"""The reminders' part of a store: where participants take them."""

from dataclasses import fields

from sqlalchemy import select, update

from crowdfl.roles.records import StoredSubscription
from crowdfl.storage import tables as t
from crowdfl.storage.database import Database
from crowdfl.storage.statements import put, remove

_SUBSCRIPTION = [t.subscriptions.c[field.name] for field in fields(StoredSubscription)]


class ReminderTables(Database):
    """One subscription of each participant that has one."""

    def put_subscription(self, subscription: StoredSubscription) -> None:
        with self._write() as c:
            put(c, t.subscriptions, [vars(subscription)])

    def delete_subscription(self, task: str, who: str | None = None) -> None:
        with self._write() as c:
            remove(c, t.subscriptions, task=task, **({} if who is None else {"who": who}))

    def take_subscriptions(self, task: str, number: int, message: str, most: int) -> list[StoredSubscription]:
        s = t.subscriptions.c
        wanted = (s.task == task) & (s[message] < number)
        with self._read() as c:  # most looks find nobody, and need no lock
            if c.execute(select(s.who).where(wanted).limit(1)).first() is None:
                return []
        with self._write() as c:
            found = [StoredSubscription(*row) for row in c.execute(select(*_SUBSCRIPTION).where(wanted).limit(most))]
            c.execute(
                update(t.subscriptions).where(wanted, s.who.in_([one.who for one in found])).values({message: number})
            )
            return found
