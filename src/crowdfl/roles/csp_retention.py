"""What CSP holds of a task, erased once the task has ended: of steps at once, of claims on their last day."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from crowdfl.documents.signed import AttestedSum
from crowdfl.protocols.capabilities import CountsRewarded
from crowdfl.protocols.claims import attested_amount, is_all_attested
from crowdfl.protocols.records import Look
from crowdfl.protocols.registry import profile_named
from crowdfl.roles.csp_records import OPENED, STEPS, StoredRecords
from crowdfl.roles.dealt import DealtFiles
from crowdfl.roles.guard import Guard
from crowdfl.roles.ports import Blobs, CspStore
from crowdfl.roles.records import StoredTask, Tombstone
from crowdfl.roles.retention import OVER, Held, PeerRetention, key_shares

CLAIMS = "claims"  # the state of a task whose steps CSP answers no more, and claims it does
CLAIMS_BUNDLE = "claims.csp"  # what CSP has then in place of its bundle


@dataclass
class CspRetention(PeerRetention[CspStore]):
    """The share, what was dealt for rounds, every answer, and the protocol's records.

    When SP says that a task is over, people may still have to be attested what they earned: SP's word does not end that. Then
    all that only steps need is erased, and claims are answered until their last day, or until everyone has claimed everything.
    """

    blobs: Blobs
    guard: Guard
    sweep_requests: Callable[[], int] = field(default=lambda: 0, kw_only=True)  # in pieces, that nobody has continued

    past = "the last day of its claims is over"

    def lives_until(self, stored: StoredTask) -> float:
        """It attests claims until then, whether SP says that the task is over or not."""
        return stored.attests_until

    def close(self, task: str, ending: Tombstone) -> None:
        stored = self.store.task(task)
        if stored.state == OVER or self.clock.now() > self.lives_until(stored) or self._is_all_attested(stored):
            end = stored.end if stored.state == CLAIMS and stored.end is not None else ending
            return super().close(task, end)
        with self.store.transaction():
            if self.store.task(task).state != CLAIMS:
                reason = ending.reason or (stored.end.reason if stored.end is not None else "")
                end = replace(ending, reason=reason)
                self.store.change_task(task, state=CLAIMS, ended_at=self.clock.now(), end=end)
        self.erase_steps(self.store.task(task))

    def _parting(self, stored: StoredTask) -> Mapping[str, object]:
        """How much was attested in all, signed: no claim is answered after this, and none was forgotten before."""
        task, settings = stored.task, stored.opened.settings
        profile = profile_named(settings.profile)
        names = [f"{task}.{one}" for one in ("csp", CLAIMS_BUNDLE)]
        bundles = [name for name in names if self.bundles.has(name)]
        if settings.budget is None or not bundles:
            return {}
        look, people = self._look(task), self.store.participants(task)
        total = sum(attested_amount(look, one.identity.who) for one in people)
        said = AttestedSum(task, str(total), settings.currency, not stored.rolled_back, self.clock.now())
        return {"attested": said.sign(profile.attesting_key(self.bundles.get(bundles[0])))}

    def erase_steps(self, stored: StoredTask) -> None:
        """All but what claims need. Idempotent: a crash may have come between its parts."""
        task = stored.task
        whole = f"{stored.task}.csp"
        left = f"{stored.task}.{CLAIMS_BUNDLE}"
        profile = profile_named(stored.opened.settings.profile)
        self.forget(task)
        if self.bundles.has(whole):
            if not self.bundles.has(left):
                self.bundles.put(left, profile.claims_bundle(self.bundles.get(whole)))
            self.bundles.delete(whole)
        DealtFiles(self.bundles, "csp").erase(task)
        look = self._look(task)
        kinds = profile.close_steps(stored.opened.spec, look)
        self.store.erase_steps(task, look, kinds)
        for folder in (STEPS, "rounds"):
            self.blobs.clear(f"{task}/{folder}")

    def _is_all_attested(self, stored: StoredTask) -> bool:
        """Never of a CSP that was set back: it may have lost what people earned."""
        if stored.rolled_back:
            return False
        profile, look = profile_named(stored.opened.settings.profile), self._look(stored.task)
        return not isinstance(profile, CountsRewarded) or is_all_attested(
            look, profile.rewarded(stored.opened.spec, look)
        )

    def _look(self, task: str) -> Look:
        return Look(StoredRecords(self.store, self.blobs, task))

    def _tend(self, stored: StoredTask, *, counting: bool) -> None:
        """Of a task with nothing but claims: what a crash has left, and its end once everyone has claimed."""
        if stored.state != CLAIMS or stored.end is None:
            return
        self.forget(stored.task)  # another process may have been told
        if counting and self._is_all_attested(stored):
            self.close(stored.task, stored.end)
        elif self.bundles.has(f"{stored.task}.csp"):
            self.erase_steps(stored)

    def held(self) -> Held:
        found = key_shares(self.bundles)
        for name in self.blobs.listing():
            found[name.partition("/")[0]]["answers"] += 1
        for task, counts in self.store.answer_counts().items():
            found[task]["answers"] = max(found[task]["answers"], counts["answers"])
            found[task]["records"] = counts["records"]
        return {task: +counts for task, counts in found.items() if counts.total()}

    def erase(self, task: str) -> None:
        self.forget(task)
        self.guard.finish(task)
        for name in ("csp", CLAIMS_BUNDLE):
            self.bundles.delete(f"{task}.{name}")
        DealtFiles(self.bundles, "csp").erase(task)
        self.blobs.clear(task)
        self.store.erase_answers(task)

    forget_unknown = erase

    def remove_unfinished(self, before: float) -> None:
        """And answers that another process was quicker with, and requests that never came whole."""
        super().remove_unfinished(before)
        self.blobs.remove_unfinished(before)
        self.sweep_requests()
        for name, written in self.blobs.listing().items():
            task, kind, *request = name.split("/")
            if written < before and kind in (STEPS, CLAIMS, OPENED) and self.store.answered(task, request[0]) != name:
                self.blobs.delete(name)

    def _blobs_written(self) -> Mapping[str, float]:
        return self.blobs.listing()
