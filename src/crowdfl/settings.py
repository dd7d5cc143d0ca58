"""TaskSettings: everything that defines a task, under the same names in keywords, task files and experiments."""

from dataclasses import dataclass, fields
from decimal import Decimal, InvalidOperation
from typing import Any, Literal, Self

from crowdfl.crypto.budget import WidthBudget
from crowdfl.crypto.encoding import FixedPoint
from crowdfl.errors import SettingsError

__all__ = ["MILLION", "TaskSettings", "from_millionths", "to_millionths"]

MILLION = 1_000_000
_FEWEST_PARTICIPANTS = 3  # with two, each one's own share of the result gives the other's away
_LARGEST_AMOUNT = 10**15
_LARGEST_NUMBER = 10**15  # of any setting: far beyond all use, and exact as a float
_LONGEST_KEY = 16384
_SHORTEST_SECURE = 2048
_AMOUNTS = f"0 to {_LARGEST_AMOUNT // MILLION:,}, with at most 6 decimals"


def to_millionths(amount: str | int | Decimal) -> int:
    """An amount of money as an integer of millionths; a float is refused, it would round."""
    if isinstance(amount, bool) or not isinstance(amount, str | int | Decimal):
        raise SettingsError(f"money is given as text, a Decimal or a whole number, not as {type(amount).__name__}")
    try:
        exact = Decimal(amount)
    except InvalidOperation:
        raise SettingsError(f"{amount!r} is no amount of money") from None
    sign, digits, exponent = exact.as_tuple()
    # By digits, not by arithmetic: Decimal's own would round or overflow.
    if not isinstance(exponent, int) or (sign and any(digits)) or not -40 <= exponent <= 20 or len(digits) > 60:
        raise SettingsError(f"{amount!r}: an amount is {_AMOUNTS}")
    scaled, remainder = divmod(int("".join(map(str, digits))) * 10 ** (exponent + 46), 10**40)
    if remainder or scaled > _LARGEST_AMOUNT:
        raise SettingsError(f"{amount!r}: an amount is {_AMOUNTS}")
    return int(scaled)


def from_millionths(amount: int) -> Decimal:
    """An integer of millionths as an exact amount of money."""
    return Decimal(amount) / MILLION


@dataclass(frozen=True, kw_only=True)
class TaskSettings:
    """The settings of one task. `sigma` and `epsilon` left at None take the profile's and the paper's value."""

    profile: str = "hardened"
    total: Literal["shown", "hidden"] = "shown"
    decimals: int = 6
    clip: float = 16.0
    max_participants: int = 36
    max_samples: int = 100
    sigma: int | None = None
    epsilon: float | None = None
    lanes: int | None = 1024
    strategy: Literal["discard", "retransmit"] = "discard"
    window: float = 3600.0
    grace: float = 600.0
    min_participants: int = _FEWEST_PARTICIPANTS
    rounds: int = 5
    budget: str | None = None
    key_bits: int = 2048

    @property
    def key(self) -> str:
        """The key's length as everyone is told it: a short one never without the warning."""
        return f"{self.key_bits} bits" + ("" if self.key_bits >= _SHORTEST_SECURE else ", INSECURE TEST KEY")

    def __post_init__(self) -> None:
        if not isinstance(self.profile, str):
            raise SettingsError(f"profile is a name, not {self.profile!r}")
        self._require("total", ("shown", "hidden"))
        self._require("strategy", ("discard", "retransmit"))
        for name in ("max_participants", "max_samples", "rounds", "key_bits", "min_participants", "decimals"):
            self._require_number(name, int, least=0 if name == "decimals" else 1)
        for name in ("lanes", "sigma"):
            if getattr(self, name) is not None:
                self._require_number(name, int, least=0)
        for name in ("window", "grace", "clip"):
            self._require_number(name, float, least=0)
        if self.epsilon is not None:
            self._require_number("epsilon", float, least=0)
        if self.key_bits % 2 or self.key_bits > _LONGEST_KEY:
            raise SettingsError(f"key_bits is even and at most {_LONGEST_KEY}, not {self.key_bits}")
        if not _FEWEST_PARTICIPANTS <= self.min_participants <= self.max_participants:
            raise SettingsError(
                f"min_participants must lie in {_FEWEST_PARTICIPANTS}..max_participants ({self.max_participants}), "
                f"not {self.min_participants}: with two, one's own result gives the other's model away"
            )
        if self.sigma is not None and not 20 <= self.sigma <= 256:
            raise SettingsError(f"sigma must lie in 20..256 bits, not {self.sigma}")
        if self.window <= 0:
            raise SettingsError("window must be positive")
        FixedPoint(self.decimals, self.clip)
        if self.epsilon_units < 1:
            raise SettingsError(f"epsilon must be at least 10^-{2 * self.decimals}, not {self.epsilon}")
        if self.budget is not None:
            to_millionths(self.budget)

    @classmethod
    def of(cls, **settings: Any) -> Self:  # noqa: ANN401 -- each value is checked by name above
        """From keywords; an unknown one is named."""
        known = {field.name for field in fields(cls)}
        unknown = sorted(set(settings) - known)
        if unknown:
            raise SettingsError(f"unknown setting {', '.join(unknown)}; the settings are {', '.join(sorted(known))}")
        return cls(**settings)

    @property
    def epsilon_units(self) -> int:
        """epsilon at scale 10^2L, where squared distances live; the paper's epsilon is 10^-L."""
        if self.epsilon is None:
            return FixedPoint(self.decimals, self.clip).scale
        return round(self.epsilon * 10.0 ** (2 * self.decimals))

    def width_budget(self, parameters: int, sigma: int) -> WidthBudget:
        """The widths that follow, or a refusal with the numbers."""
        return WidthBudget(
            key_bits=self.key_bits,
            parameters=parameters,
            max_participants=self.max_participants,
            max_samples=self.max_samples,
            clip=self.clip,
            decimals=self.decimals,
            rounds=self.rounds,
            sigma=sigma,
            lanes=self.lanes,
            total=self.total,
        )

    def _require_number(self, name: str, kind: type, *, least: int) -> None:
        value = getattr(self, name)
        allowed = (int,) if kind is int else (int, float)
        number = isinstance(value, allowed) and not isinstance(value, bool)
        if not number or not least <= value <= _LARGEST_NUMBER:  # no NaN either: it is not at least anything
            whole, said = "whole number" if kind is int else "number", repr(value)[:100]
            raise SettingsError(f"{name} must be a {whole} from {least} to {_LARGEST_NUMBER}, not {said}")

    def _require(self, name: str, allowed: tuple[str, ...]) -> None:
        if getattr(self, name) not in allowed:
            raise SettingsError(f"{name} is {' or '.join(map(repr, allowed))}, not {getattr(self, name)!r}")
