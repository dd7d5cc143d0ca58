"""What KGC holds of a task, erased once the task has ended."""

from crowdfl.roles.ports import KgcStore
from crowdfl.roles.retention import BUNDLES, SOURCE, Held, PeerRetention, key_shares


class KgcRetention(PeerRetention[KgcStore]):
    """Bundles that nobody has fetched yet, and the participants' until enrolment closes: after the last round of no use."""

    past = "the last day of its rounds is over"

    def held(self) -> Held:
        return dict(key_shares(self.bundles))

    def erase(self, task: str) -> None:
        """Every bundle; that keys were dealt, and which, stays known: they are never dealt again."""
        for role in (*BUNDLES, SOURCE):
            self.bundles.delete(f"{task}.{role}")

    def forget_unknown(self, task: str) -> None:
        """The mark first: without it whoever asks again is dealt fresh keys, and nobody has seen these."""
        for name in ("dealt", *BUNDLES, SOURCE, "appointment"):
            self.bundles.delete(f"{task}.{name}")
