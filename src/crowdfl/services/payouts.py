"""How payments leave SP: the operator's program for each, run by a thread of its own beside the rounds."""

import subprocess
import threading
from dataclasses import dataclass, field

from structlog.types import FilteringBoundLogger

from crowdfl.errors import CrowdFLError, PaymentFailed, PaymentUnknown, ServiceUnavailable
from crowdfl.roles.ports import StoredPayment
from crowdfl.roles.sp.payments import Payments
from crowdfl.services.http import logs
from crowdfl.services.http.app_factory import Background

_LONGEST_STOP = 30.0  # seconds that a program which is still running keeps the service from ending


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
class Payouts(Background):
    """The thread that makes payments. What fails is logged by name; the payment itself says what became of it."""

    payments: Payments
    log: FilteringBoundLogger
    interval: float = 1.0
    patience: float = _LONGEST_STOP
    _stop: threading.Event = field(default_factory=threading.Event, repr=False)
    _thread: threading.Thread | None = field(default=None, repr=False)

    def start(self) -> None:
        self._stop.clear()
        self._thread = threading.Thread(target=self._run, name="sp-payouts", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """A program that has not ended by then goes on by itself, and its payment is unknown."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(self.patience)
            if self._thread.is_alive():
                self.payments.abandon()

    def check(self) -> None:
        if self._thread is None or not self._thread.is_alive():
            raise ServiceUnavailable("payments are not made: restart this service and look into its log")

    def _run(self) -> None:
        while not self._stop.wait(self.interval):
            try:
                while not self._stop.is_set() and self.payments.run_one():
                    pass
            except (CrowdFLError, OSError) as failure:
                self.log.warning("payments failed", **logs.described(failure))
