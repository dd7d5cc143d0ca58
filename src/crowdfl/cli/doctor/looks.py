"""Whether phones hear of a round while it is open."""

from collections.abc import Iterator
from contextlib import closing

from crowdfl.cli.doctor.check import DoctorCheck, ok, warn
from crowdfl.documents.signed import Definition
from crowdfl.durations import duration
from crowdfl.errors import TaskUnreadable
from crowdfl.roles.records import TaskState
from crowdfl.roles.sp.tasks import longest_turn
from crowdfl.settings import SpSettings
from crowdfl.storage.sql import SqlStore


def looks_checks(settings: SpSettings) -> Iterator[DoctorCheck]:
    """Of each task under way whose idle phones look so rarely that some miss half of a round or more."""
    if settings.database is None and not (settings.data / "state.db").exists():
        return
    with closing(SqlStore(settings.database_url)) as store:
        for stored in store.tasks():
            if stored.state not in (TaskState.RUNNING, TaskState.PAUSED):
                continue
            try:
                active = store.status(stored.task).active
            except TaskUnreadable as wrong:
                advice = "run the version that wrote it, or a later one; or mend the row"
                yield warn("looks", f"task {stored.task[:8]} cannot be read: {wrong.why}", advice)
                continue
            turn = longest_turn(active, settings.looks_per_second)
            window = Definition.open(stored.definition).settings.window
            shown = f"task {stored.task[:8]}: {active:,} idle phones look within {duration(round(turn, 1))}"
            if turn <= window / 2:
                yield ok("looks", shown)
                continue
            wanted = longest_turn(active, 1.0) / (window / 2)
            advice = f"raise `looks_per_second` to {wanted:.0f}, or give rounds a longer `window`: docs/operations.md"
            yield warn("looks", f"{shown}, and a round is open for {duration(window)}", advice)
