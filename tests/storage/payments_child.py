"""A process that makes payments from a store that others share; see `test_payments`.

    python payments_child.py URL SECONDS PROGRAM...     pays until nothing is left to pay; SECONDS is its lease

It prints a line when it is ready, and waits for one on its input before it starts.
"""

import sys
import time
from dataclasses import dataclass

from crowdfl.roles.ports import SpStore
from crowdfl.roles.records import PaymentState
from crowdfl.roles.sp.core import SpOptions
from crowdfl.roles.sp.money import Payments
from crowdfl.services.background.workers import PayoutCommand
from crowdfl.services.client.transport import SystemClock
from crowdfl.storage.sql import SqlStore


@dataclass
class Books:
    store: SpStore
    clock = SystemClock()


def main() -> None:
    url, seconds, *program = sys.argv[1:]
    store = SqlStore(url)
    payments = Payments(Books(store), SpOptions(on_paid=PayoutCommand(tuple(program)), lease_seconds=float(seconds)))  # type: ignore[arg-type]
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()
    while any(payment.state is not PaymentState.PAID for payment in store.payments()):
        if not payments.run_one():
            time.sleep(0.05)
    store.close()


if __name__ == "__main__":
    main()
