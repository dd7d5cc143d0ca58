"""The budget's escrow as a double-entry ledger, in integer millionths.

Every movement takes from one account and gives to another, so that all balances always sum to zero. A movement has a name of
its own: asked for twice with the same contents it is one movement, with other contents it is refused. Only `requester` and the
participants' accounts lie outside the platform; money never leaves an account that does not hold it.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from crowdfl.errors import LedgerConflict, NotEnoughMoney, SettingsError

REQUESTER = "requester"  # what the requester has paid in, as a negative balance
ESCROW = "escrow"  # paid in, not yet promised to a round
REWARDS = "rewards"  # earned by participants, not yet claimed
_PAY = "pay "


def round_account(number: int) -> str:
    """What a round holds from before it opens until it is rewarded or aborted."""
    return f"round {number}"


def participant_account(who: str) -> str:
    return f"participant {who}"


@dataclass(frozen=True)
class Movement:
    """Millionths from one account to another, under a name that makes it happen once."""

    name: str
    source: str
    target: str
    amount: int

    def __post_init__(self) -> None:
        if not isinstance(self.amount, int) or isinstance(self.amount, bool) or self.amount < 0:
            raise SettingsError(f"a movement is a whole number of millionths, not {self.amount!r}")
        if self.source == self.target:
            raise SettingsError(f"a movement from {self.source} to itself")


class Ledger:
    """The accounts of one task, rebuilt from its movements."""

    def __init__(self, movements: Iterable[Movement] = ()) -> None:
        self._movements: dict[str, Movement] = {}
        self._balances: dict[str, int] = {}
        for movement in movements:
            self.post(movement)

    @property
    def movements(self) -> list[Movement]:
        return list(self._movements.values())

    def balance(self, account: str) -> int:
        return self._balances.get(account, 0)

    def balances(self) -> dict[str, int]:
        return dict(self._balances)

    def post(self, movement: Movement) -> bool:
        """Make a movement; False if this very movement was made before."""
        known = self._movements.get(movement.name)
        if known is not None:
            if known != movement:
                raise LedgerConflict(f"movement {movement.name!r} was made with other contents")
            return False
        if movement.source != REQUESTER and self.balance(movement.source) < movement.amount:
            raise NotEnoughMoney(
                f"{movement.source} holds {self.balance(movement.source)} millionths, {movement.amount} are asked for"
            )
        self._movements[movement.name] = movement
        self._balances[movement.source] = self.balance(movement.source) - movement.amount
        self._balances[movement.target] = self.balance(movement.target) + movement.amount
        return True

    def paid(self) -> dict[str, int]:
        return {m.name.removeprefix(_PAY): m.amount for m in self.movements if m.name.startswith(_PAY)}

    def for_requester(self, *, settled: bool) -> "Ledger":
        """The books as the requester sees them: all payments as one, and only when no claim can follow any more.

        One by one, or seen to grow, they would say what each participant earned, which is for that participant and the servers.
        """
        shown = [movement for movement in self.movements if not movement.name.startswith(_PAY)]
        paid = sum(self.paid().values())
        if settled and paid:
            earned = max(i for i, movement in enumerate(shown) if movement.target == REWARDS)
            shown.insert(earned + 1, Movement(f"{_PAY}participants", REWARDS, "participants", paid))
        return Ledger(shown)

    # The movements of a campaign, by what they are for.

    def deposit(self, name: str, amount: int) -> Movement:
        return Movement(f"deposit {name}", REQUESTER, ESCROW, amount)

    def fund_round(self, number: int, amount: int) -> Movement:
        return Movement(f"fund round {number}", ESCROW, round_account(number), amount)

    def abort_round(self, number: int) -> Movement:
        return Movement(f"abort round {number}", round_account(number), ESCROW, self.balance(round_account(number)))

    def reward_round(self, number: int) -> Movement:
        """A rewarded round's budget is owed to its participants; who gets how much is not known here yet."""
        return Movement(f"reward round {number}", round_account(number), REWARDS, self.balance(round_account(number)))

    def pay(self, who: str, amount: int) -> Movement:
        return Movement(_PAY + who, REWARDS, participant_account(who), amount)

    def expire_claims(self) -> Movement:
        """After the claim deadline, what nobody claimed returns to escrow."""
        return Movement("expire claims", REWARDS, ESCROW, self.balance(REWARDS))

    def refund(self, name: str) -> Movement:
        return Movement(f"refund {name}", ESCROW, REQUESTER, self.balance(ESCROW))
