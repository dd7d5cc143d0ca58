"""What KGC and CSP hold of their tasks on disk and in their databases, and how it is erased; SP's is in `roles.sp.holdings`."""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from crowdfl.roles.dealt import DEALT_FILES, DealtFiles, is_dealt_file
from crowdfl.roles.ends import KEY_SHARES, Held
from crowdfl.roles.ports import Blobs, CspStore, KgcStore

BUNDLES = ("sp", "csp", "requester", "participant")  # that KGC deals, by whom they are for
SOURCE = "source"  # what KGC makes the files of rounds from, until both servers have theirs


def key_shares(bundles: Blobs) -> defaultdict[str, Counter[str]]:
    """How many of each task are in a folder of keys, what was dealt for rounds apart; KGC's has other files beside them."""
    found: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for name in bundles.listing():
        task = _task_of_key(name)
        if task is not None and is_dealt_file(name):
            found[task][DEALT_FILES] += 1
        elif task is not None and name.endswith((*BUNDLES, SOURCE)):
            found[task][KEY_SHARES] += 1
    return found


def _task_of_key(name: str) -> str | None:
    """Of a file in a folder of keys: `TASK.ROLE`."""
    task, dot, _ = name.partition(".")
    return task if dot else None


def last_written(keys: Mapping[str, float], blobs: Mapping[str, float]) -> dict[str, float]:
    """By task, from listings of both folders."""
    found: dict[str, float] = {}
    named = [(_task_of_key(name), when) for name, when in keys.items()]
    for task, when in [*named, *((name.partition("/")[0], when) for name, when in blobs.items())]:
        if task is not None:
            found[task] = max(when, found.get(task, when))
    return found


@dataclass
class KgcHoldings:
    """Bundles that nobody has fetched yet, and the participants' until enrolment closes."""

    store: KgcStore
    bundles: Blobs

    def held(self) -> Held:
        return dict(key_shares(self.bundles))

    def written(self) -> dict[str, float]:
        return last_written(self.bundles.listing(), {})

    def erase(self, task: str) -> None:
        """Every bundle; that keys were dealt, and which, stays known: they are never dealt again."""
        for role in (*BUNDLES, SOURCE):
            self.bundles.delete(f"{task}.{role}")

    def forget_unknown(self, task: str) -> None:
        """The mark first: without it whoever asks again is dealt fresh keys, and nobody has seen these."""
        for name in ("dealt", *BUNDLES, SOURCE, "appointment"):
            self.bundles.delete(f"{task}.{name}")

    def drop(self, task: str) -> None:
        """KGC keeps nothing of a task in memory."""

    def remove_unfinished(self, before: float) -> None:
        self.bundles.remove_unfinished(before)


@dataclass
class CspHoldings:
    """`forget` drops what the process has in memory; a command beside the service has nothing."""

    store: CspStore
    blobs: Blobs
    bundles: Blobs
    forget: Callable[[str], None] = lambda _task: None

    def held(self) -> Held:
        found = key_shares(self.bundles)
        for name in self.blobs.listing():
            found[name.partition("/")[0]]["answers"] += 1
        for task, counts in self.store.answer_counts().items():
            found[task]["answers"] = max(found[task]["answers"], counts["answers"])
            found[task]["memory"] = counts["memory"]
        return {task: +counts for task, counts in found.items() if counts.total()}

    def written(self) -> dict[str, float]:
        return last_written(self.bundles.listing(), self.blobs.listing())

    def erase(self, task: str) -> None:
        """The share, what was dealt for rounds, every answer, and what the protocol remembers."""
        self.drop(task)
        self.bundles.delete(f"{task}.csp")
        DealtFiles(self.bundles, "csp").erase(task)
        self.blobs.clear(task)
        self.store.erase_answers(task)

    forget_unknown = erase

    def drop(self, task: str) -> None:
        self.forget(task)

    def remove_unfinished(self, before: float) -> None:
        self.bundles.remove_unfinished(before)
        self.blobs.remove_unfinished(before)
