"""The budget's escrow as a double-entry ledger, in integer millionths.

Every movement takes from one account and gives to another, so that all balances always sum to zero. A movement has a name of
its own: asked for twice with the same contents it is one movement, with other contents it is refused. Only `requester` and the
participants' accounts lie outside the platform; money never leaves an account that does not hold it.

Each round has its own accounts: what is paid for a round comes from that round's budget, and from nothing else.
"""

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace

from crowdfl.errors import LedgerConflict, NotEnoughMoney
from crowdfl.protocols.claims import BONUS
from crowdfl.roles.records import Movement

REQUESTER = "requester"  # what the requester has paid in, as a negative balance
ESCROW = "escrow"  # paid in, not yet promised to a round
REWARDS = "rewards"  # as the requester sees it: all that rounds have earned and nobody has claimed
_PAY, _EXPIRE, _EARNED, _UNUSED, _OWED, _DISPUTED = "pay ", "expire claims", "earned ", "unused ", "owed ", "disputed "
PAID_PEOPLE, PAID_UNUSED = "pay participants", "pay unused uploads"  # all of them as one, as the requester sees it
BONUSES = "bonuses"  # prepaid with the first round
_PAYMENT = re.compile(r"pay (unused )?(.+) round ([0-9]+)")


def round_account(number: int) -> str:
    """What a round holds from before it opens until it is rewarded or aborted."""
    return f"round {number}"


def earned_account(number: int) -> str:
    """What the participants of a round earned and have not claimed."""
    return f"{_EARNED}{number}"


def unused_account(number: int) -> str:
    """What a round keeps for uploads that come after its goal."""
    return f"{_UNUSED}{number}"


def owed_account(who: str) -> str:
    """What somebody is owed for uploads that were not used."""
    return f"{_OWED}{who}"


def disputed_account(who: str, number: int) -> str:
    """What is held for an unused upload until the operator has decided."""
    return f"{_DISPUTED}{who} round {number}"


def participant_account(who: str) -> str:
    return f"participant {who}"


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
            # Without the balance: a requester could follow it, and learn what a single claim was paid.
            raise NotEnoughMoney(f"{movement.source} does not hold enough for {movement.name!r}")
        self._movements[movement.name] = movement
        self._balances[movement.source] = self.balance(movement.source) - movement.amount
        self._balances[movement.target] = self.balance(movement.target) + movement.amount
        return True

    def returned(self) -> int:
        """What went back to the requester."""
        return sum(movement.amount for movement in self.movements if movement.target == REQUESTER)

    def budgets(self) -> dict[int, int]:
        """What each rewarded round had to give, by its number."""
        return {int(m.target.removeprefix(_EARNED)): m.amount for m in self.movements if m.target.startswith(_EARNED)}

    def paid(self) -> dict[str, dict[int, int]]:
        """What each participant was paid of what it earned, by round."""
        return self._paid(unused=False)

    def paid_unused(self) -> dict[str, dict[int, int]]:
        """What each participant was paid for uploads that were not used, by round."""
        return self._paid(unused=True)

    def _paid(self, *, unused: bool) -> dict[str, dict[int, int]]:
        found: defaultdict[str, dict[int, int]] = defaultdict(dict)
        for movement in self.movements:
            payment = _PAYMENT.fullmatch(movement.name)
            if payment is not None and bool(payment[1]) is unused:
                found[payment[2]][int(payment[3])] = movement.amount
        return dict(found)

    def booked(self, who: str) -> list[tuple[int, int]]:
        """Round and amount of all that was booked for somebody, earned or for an unused upload, in that order."""
        found = ((_PAYMENT.fullmatch(movement.name), movement.amount) for movement in self.movements)
        return [(int(one[3]), amount) for one, amount in found if one is not None and one[2] == who]

    def unused(self, who: str) -> dict[int, int]:
        """What a participant is owed for uploads that were not used, by round."""
        owed = [m for m in self.movements if m.target == f"{_OWED}{who}"]
        return {int(m.source.removeprefix(_UNUSED)): m.amount for m in owed}

    def owes_unused(self) -> bool:
        """Whether somebody is owed for an upload that was not used."""
        return any(held for name, held in self._balances.items() if name.startswith(_OWED))

    def for_requester(self, *, settled: bool) -> "Ledger":
        """The books as the requester sees them: all payments as one, and only when no claim can follow any more.

        One by one, by round, or seen to grow, they would say what each participant earned, which is for that participant and
        the servers.
        """
        word = sum(sum(rounds.values()) for rounds in self.paid_unused().values())
        paid = sum(m.amount for m in self.movements if m.name.startswith(_PAY)) - word
        expired = sum(m.amount for m in self.movements if m.name.startswith(_EXPIRE))
        merged = Ledger()
        for movement in self.movements:
            if movement.target.startswith((_EARNED, _UNUSED)):
                merged.post(replace(movement, target=REWARDS))
            elif movement.target.startswith((_OWED, _DISPUTED)):
                continue
            elif movement.name.startswith(_EXPIRE):
                merged.post(Movement(_EXPIRE, REWARDS, ESCROW, expired))  # the others are this very movement
            elif not movement.name.startswith(_PAY):
                merged.post(movement)
        if settled and paid:
            merged.post(Movement(PAID_PEOPLE, REWARDS, "participants", paid))
        if settled and word:
            merged.post(Movement(PAID_UNUSED, REWARDS, "participants", word))
        return merged

    # The movements of a campaign, by what they are for.

    @staticmethod
    def fund_round(number: int, amount: int) -> Movement:
        return Movement(f"fund round {number}", ESCROW, round_account(number), amount)

    @staticmethod
    def fund_unused(number: int, amount: int) -> Movement:
        return Movement(f"fund unused uploads of round {number}", ESCROW, unused_account(number), amount)

    @staticmethod
    def owe_unused(who: str, number: int, amount: int) -> Movement:
        return Movement(Ledger.unused_name(who, number), unused_account(number), owed_account(who), amount)

    @staticmethod
    def unused_name(who: str, number: int) -> str:
        """Of the movement by which somebody is owed for an upload that was not used."""
        return f"{_UNUSED}{who} round {number}"

    @staticmethod
    def deposit(name: str, amount: int) -> Movement:
        return Movement(f"deposit {name}", REQUESTER, ESCROW, amount)

    def abort_round(self, number: int) -> Movement:
        return Movement(f"abort round {number}", round_account(number), ESCROW, self.balance(round_account(number)))

    def reward_round(self, number: int, most: int | None = None) -> Movement:
        """A rewarded round's budget is owed to its participants; who gets how much is not known here yet. Of fixed pay at most
        so much is."""
        budget = self.balance(round_account(number))
        owed = budget if most is None else min(most, budget)
        return Movement(f"reward round {number}", round_account(number), earned_account(number), owed)

    def rewards_of_round(self, number: int, most: int | None = None) -> list[Movement]:
        """With what is free again."""
        reward = self.reward_round(number, most)
        rest = self.balance(round_account(number)) - reward.amount
        back = Movement(f"return of round {number}", round_account(number), ESCROW, rest)
        return [reward, back] if rest else [reward]

    @staticmethod
    def fund_bonuses(amount: int) -> Movement:
        return Movement("fund bonuses", ESCROW, BONUSES, amount)

    def reward_bonuses(self, owed: int) -> list[Movement]:
        """Once it is known who gets one; the rest is free again."""
        held = self.balance(BONUSES)
        owed = min(owed, held)
        reward = Movement("reward bonuses", BONUSES, earned_account(BONUS), owed)
        rest = Movement("return of bonuses", BONUSES, ESCROW, held - owed)
        return [reward, rest] if rest.amount else [reward]

    @staticmethod
    def pay(who: str, number: int, amount: int) -> Movement:
        return Movement(f"{_PAY}{who} round {number}", earned_account(number), participant_account(who), amount)

    @staticmethod
    def pay_unused(who: str, number: int, amount: int) -> Movement:
        return Movement(f"{_PAY}unused {who} round {number}", owed_account(who), participant_account(who), amount)

    @staticmethod
    def dispute(who: str, number: int, source: str, amount: int) -> Movement:
        return Movement(f"dispute {who} round {number}", source, disputed_account(who, number), amount)

    @staticmethod
    def pay_disputed(who: str, number: int, amount: int) -> Movement:
        """The same movement as `pay_unused`, from what is held."""
        name = f"{_PAY}unused {who} round {number}"
        return Movement(name, disputed_account(who, number), participant_account(who), amount)

    @staticmethod
    def release(who: str, number: int, amount: int) -> Movement:
        """What was disputed is not owed."""
        held = disputed_account(who, number)
        return Movement(f"{_EXPIRE} of {held}", held, ESCROW, amount)

    def expire_claims(self) -> list[Movement]:
        """After the claim deadline, what nobody claimed of each round returns to escrow, and what unused uploads have left."""
        rounds = [number for number, budget in self.budgets().items() if budget]
        left = [Movement(f"{_EXPIRE} {n}", earned_account(n), ESCROW, self.balance(earned_account(n))) for n in rounds]
        kept = [
            (name, held) for name, held in self._balances.items() if name.startswith((_UNUSED, _OWED, BONUSES)) and held
        ]
        return left + [Movement(f"{_EXPIRE} of {name}", name, ESCROW, held) for name, held in kept]

    def refund(self, name: str) -> Movement:
        return Movement(f"refund {name}", ESCROW, REQUESTER, self.balance(ESCROW))
