"""A participant that never sends the upload of one round: what `--hold-upload` tries dropouts with."""

import time
from dataclasses import dataclass

from crowdfl.roles.participant.participant import Participant


@dataclass
class HoldingParticipant(Participant):
    """One round's upload is never sent, however long one waits."""

    hold: int = 0

    def send(self, number: int) -> bool:
        if number == self.hold:
            self.on_event("holding", {"round": number})
            while True:
                time.sleep(3600)
        return super().send(number)
