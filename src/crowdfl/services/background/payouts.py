"""How payments leave SP: the operator's program for each, run by a thread of its own beside the rounds."""

import subprocess
from dataclasses import dataclass

from crowdfl.errors import PaymentFailed, PaymentUnknown
from crowdfl.retry import Backoff, no_jitter
from crowdfl.roles.records import StoredPayment
from crowdfl.roles.sp.payments import Payments
from crowdfl.services.background.ticker import LONGEST_PAUSE
from crowdfl.services.background.worker import Worker, log_failure


@dataclass(frozen=True)
class PayoutCommand:
    """Runs a program with task, participant, millionths and the payment's key as its last arguments.

    Status 0 says that it paid, another status that it did not: it is run again later. Where it says neither, nobody knows.
    """

    command: tuple[str, ...]
    seconds: float = 60.0

    def __call__(self, payment: StoredPayment) -> None:
        arguments = [*self.command, payment.task, payment.who, str(payment.amount), payment.key]
        try:
            # The operator's own settings name the program; no shell reads its arguments.
            program = subprocess.Popen(arguments, stdin=subprocess.DEVNULL)  # noqa: S603
        except OSError as problem:
            raise PaymentFailed(f"the payout program could not be started: {type(problem).__name__}") from None
        with program:
            self._wait(program)

    def _wait(self, program: "subprocess.Popen[bytes]") -> None:
        try:
            status = program.wait(self.seconds)
        except subprocess.TimeoutExpired:
            program.kill()
            raise PaymentUnknown(f"the payout program took longer than {self.seconds:g} s and was ended") from None
        if status < 0:
            raise PaymentUnknown(f"the payout program was ended by signal {-status}")
        if status:
            raise PaymentFailed(f"the payout program ended with status {status}; it will be run again later")


@dataclass
class Payouts(Worker):
    """The thread that makes payments. What fails is logged by name; the payment itself says what became of it."""

    payments: Payments
    interval: float = 1.0

    name = "sp-payouts"
    without = "payments are not made"

    def stop(self) -> None:
        """A program that has not ended by then goes on by itself, and its payment is unknown."""
        super().stop()
        if self._is_alive:
            self.payments.abandon()

    def _work(self) -> None:
        backoff, failures = Backoff(first=self.interval, longest=LONGEST_PAUSE, jitter=no_jitter), 0
        while not self._stop.wait(backoff.delay(failures)):
            try:
                while not self._stop.is_set() and self.payments.run_one():
                    pass
                failures = 0
            except Exception as failure:  # noqa: BLE001 -- of one payment, or of a store that is away
                failures += 1
                log_failure(self.log, "payments failed", failure, failures=failures)
