"""What happens when a participant is paid: the operator's own program, which moves real money."""

import subprocess
from dataclasses import dataclass

from crowdfl.errors import ServiceUnavailable

__all__ = ["PayoutCommand"]


@dataclass(frozen=True)
class PayoutCommand:
    """Runs a program with task, participant and millionths as its last arguments, at least once for each payment.

    A program that ends with another status than 0 is run again later; one that was run just before a crash is too. It can
    tell a repeat by task and participant: there is one payment for each pair.
    """

    command: tuple[str, ...]
    seconds: float = 60.0

    def __call__(self, task: str, who: str, amount: int) -> None:
        """Run it and wait for its end."""
        try:
            # The operator's own settings name the program; no shell reads its arguments.
            done = subprocess.run(  # noqa: S603
                [*self.command, task, who, str(amount)], stdin=subprocess.DEVNULL, timeout=self.seconds, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as problem:
            raise ServiceUnavailable(f"the payout command could not be run: {type(problem).__name__}") from None
        if done.returncode:
            raise ServiceUnavailable(f"the payout command ended with status {done.returncode}: it is run again later")
