"""Every setting, declared once: its type, bounds, default and one line of help.

Task files, service settings, the page docs/settings.md, the templates of `crowdfl init` and `crowdfl task new`, and the
error texts all come from these models. A field without a description is set by the program, never by a file.
"""

import base64
import contextlib
import datetime
import ipaddress
import math
import re
import zoneinfo
from collections.abc import Callable, Iterator
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypedDict, get_args
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)

from crowdfl import accounting
from crowdfl.durations import duration
from crowdfl.errors import SettingsError
from crowdfl.schema import Duration, Expected, Settings, SettingsTable, in_seconds

MILLION = 1_000_000
LANGUAGE = re.compile("[a-z]{2,3}(-[A-Z][a-z]{3})?(-([A-Z]{2}|[0-9]{3}))?")
MOST_LANGUAGES = 20
DAY = 86400.0
LAST_DATE = 253_402_300_799  # the end of the year 9999, in seconds since 1970: everyone can still write it
_ENROLMENT = 30 * DAY  # of a plan that gives no time to begin: as long as invitations are usually good
MOST_DEVICES = 5  # of one person in a task, one after the other
_LABEL = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?")
_FEWEST_PARTICIPANTS = 3  # with two, each one's own share of the result gives the other's away
SuppliedLearner = Literal["network", "conv", "softmax"]  # what comes with the package
LEARNERS: tuple[str, ...] = get_args(SuppliedLearner)
FUNCTIONS, TORCH_FUNCTIONS = "functions", "torch functions"  # of `crowdfl.join`: everyone brings their own
LEAST_PARTICIPANTS = 5  # that a participant wants in an average, unless its owner says otherwise
TOKEN_ROLES = ("requester", "sp", "csp", "operator", "bank", "monitor")  # what a token of a service is good for
LOSSES = ("squared", "absolute", "huber")  # of values
UNTIL_PUBLISHED = "until published"  # of `late`
_LARGEST_AMOUNT = 10**15
_LARGEST_NUMBER = 10**15  # of any setting: far beyond all use, and exact as a float
_LONGEST_UPDATE = 2**16  # whole units, where noise is added: more would only make numbers longer
_LARGEST_SIGMA = 2**24
LEAST_LANES = 1024  # where a rejection must not depend on chance: of the sketch with `epsilon`, or with `reference`
DELTA = 1e-5  # where a task with noise sets none
_LARGEST_SCALED = 2**53  # beyond this a double no longer counts in ones
_LONGEST_KEY = 16384
_SHORTEST_SECURE = 2048
_LONGEST = 10_000  # of what a phone is asked to do: it must not be kept busy for ever
_PNG = b"\x89PNG\r\n\x1a\n"
_WIDEST_LOGO = 512  # pixels
_LARGEST_LOGO = 32_768  # bytes
_LONGEST_MOMENT = 40  # characters
_EACH_DAY = "day at "
_LAST_YEAR = 3000  # a day after the last one that calendars have would stop a platform
SERVER_STEPS = {
    "none": (),
    "fedavgm": ("server_rate", "server_momentum"),
    "fedadagrad": ("server_rate", "server_momentum", "server_floor"),
    "fedadam": ("server_rate", "server_momentum", "server_squares", "server_floor"),
    "fedyogi": ("server_rate", "server_momentum", "server_squares", "server_floor"),
}
ServerStepName = Literal["none", "fedavgm", "fedadagrad", "fedadam", "fedyogi"]
# Of ISO 4217, those with two decimals: a cent is a hundredth.
CURRENCIES = (
    "AED AUD BRL CAD CHF CNY COP CZK DKK EGP EUR GBP GHS HKD HUF IDR ILS INR KES MAD MXN MYR NGN NOK NZD PEN PHP PKR PLN RON "
    "SAR SEK SGD THB TRY TWD UAH USD ZAR"
)
_AMOUNTS = f"0 to {_LARGEST_AMOUNT // MILLION:,}, with at most 6 decimals"


def is_host(value: object) -> bool:
    """Whether this is a plain host name or an IP address."""
    if not isinstance(value, str) or len(value) > 253:
        return False
    try:
        return "%" not in value and bool(ipaddress.ip_address(value))
    except ValueError:
        labels = value.split(".")
        return all(map(_LABEL.fullmatch, labels)) and not labels[-1].isdigit()  # 1.2.3 and 1.2.3.999 are mistyped


def _fitting(fits: Callable[[Any], bool]) -> AfterValidator:
    def check(value: object) -> object:
        if not fits(value):
            raise ValueError("see the type's `Expected`")
        return value

    return AfterValidator(check)


def _is_text(value: str) -> bool:
    return bool(value) and value.isprintable()


def _is_url(value: str) -> bool:
    """One that a client can take; whether plain HTTP is allowed is the client's to say."""
    parts = urlsplit(value)
    _ = parts.port  # looked at only now: above 65535 it is a ValueError
    plain = value.isascii() and value.isprintable() and " " not in value
    return plain and parts.scheme in ("http", "https") and is_host(parts.hostname)


def origin_of(url: str) -> str:
    """Scheme, host and port of an address as a browser writes them: in lower case, without the usual port."""
    parts = urlsplit(url)
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    usual = parts.port in (None, {"http": 80, "https": 443}.get(parts.scheme))
    return f"{parts.scheme}://{host}" + ("" if usual else f":{parts.port}")


def is_push_host(value: str) -> bool:
    """A host, all below one, or one of this machine with its port."""
    name, _, port = value.partition(":")
    if port:
        return name in ("localhost", "127.0.0.1") and port.isascii() and port.isdecimal() and 0 < int(port) < 65536
    return is_host(name := value.removeprefix("*.")) and "." in name and value == value.lower()


def is_code(value: str) -> bool:
    """Whether this names code as package.module:Name."""
    place, colon, name = value.partition(":")
    return bool(colon) and name.isidentifier() and all(part.isidentifier() for part in place.split("."))


def is_loss(value: str) -> bool:
    return value in LOSSES or is_code(value)


def _is_learner(value: str) -> bool:
    return value in (FUNCTIONS, TORCH_FUNCTIONS) or is_code(value)


def _is_layer(value: object) -> bool:
    """A width, or a line that whoever builds the network reads."""
    return isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool))


def is_origin(value: str) -> bool:
    """Whether a browser would write an origin so."""
    try:
        return _is_url(value) and origin_of(value) == value
    except ValueError:
        return False


def _key(value: object) -> object:
    """A key as files write it, or its bytes."""
    return bytes.fromhex(value) if isinstance(value, str) and re.fullmatch(r"[0-9a-fA-F]{64}", value) else value


def _path(value: object) -> object:
    return Path(value) if isinstance(value, str) and _is_text(value) else value


def _whole(value: object) -> object:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def to_millionths(amount: str | int | Decimal) -> int:
    """An amount of money as an integer of millionths; a float is refused, it would round."""
    if isinstance(amount, bool) or not isinstance(amount, str | int | Decimal):
        raise SettingsError(f"money is given as text, a Decimal or a whole number, not as {type(amount).__name__}")
    try:
        exact = Decimal(amount)
    except InvalidOperation:
        raise SettingsError(f"{amount!r} is not an amount of money") from None
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


def in_cents(millionths: int) -> Decimal:
    """An amount as it is shown and paid out: rounded down to the cent, once. Sums are of exact millionths."""
    return Decimal(millionths // (MILLION // 100)).scaleb(-2)


def handed_over(before: int, amount: int) -> int:
    """What is paid out of an amount after others, in millionths: whole cents, and no part of one is lost between two."""
    return whole_cents(before + amount) - whole_cents(before)


def whole_cents(amount: int) -> int:
    """Of an amount in millionths, rounded down."""
    return amount // (MILLION // 100) * (MILLION // 100)


def money_words(millionths: int, currency: str) -> str:
    """As people read it: 12.34 EUR."""
    return f"{in_cents(millionths):f} {currency}"


def _amount(value: str | int | Decimal) -> str | int | Decimal:
    try:
        to_millionths(value)
    except SettingsError as wrong:
        raise ValueError(wrong) from None
    return value


def _is_logo(value: str) -> bool:
    """A definition holds it as text, in base 64."""
    try:
        data = base64.b64decode(value, validate=True)
    except ValueError:
        return False
    wide, high = (int.from_bytes(data[at : at + 4]) for at in (16, 20))  # a small file may be a picture of gigabytes
    fits = len(data) <= _LARGEST_LOGO and 0 < wide <= _WIDEST_LOGO and 0 < high <= _WIDEST_LOGO
    return not value or (data.startswith(_PNG) and data[12:16] == b"IHDR" and fits)


def _moment(value: object) -> object:
    """TOML has dates and times of its own; a definition holds them as text."""
    return value.isoformat() if isinstance(value, datetime.datetime) else value


def _is_moment(value: str) -> bool:
    try:
        found = datetime.datetime.fromisoformat(value[: _LONGEST_MOMENT + 1])
    except ValueError:
        return False
    return found.tzinfo is not None and 1970 <= found.year < _LAST_YEAR and len(value) <= _LONGEST_MOMENT


def _daily(value: str) -> tuple[datetime.time, datetime.tzinfo]:
    """A time of day, and where it is that time."""
    clock, _, zone = value.removeprefix(_EACH_DAY).partition(" ")
    return datetime.datetime.strptime(clock, "%H:%M").time(), zoneinfo.ZoneInfo(zone or "UTC")


def _is_daily(value: str) -> bool:
    try:
        return bool(re.fullmatch(_EACH_DAY + "[0-9]{2}:[0-9]{2}( [A-Za-z0-9_+/-]{1,60})?", value)) and bool(
            _daily(value)
        )
    except (ValueError, OSError, zoneinfo.ZoneInfoNotFoundError):
        return False


def _is_prose(value: str) -> bool:
    """Plain text in lines; joiners, which some scripts need, are the only marks that cannot be seen."""
    return all(letter.isprintable() or letter in "\n\u200c\u200d" for letter in value)


_Number = int | float  # a task's id covers the form it is written in: 16 stays 16, and 16.0 stays 16.0
_Text = Annotated[str, _fitting(_is_text), Expected("a string")]
_Texts = Annotated[tuple[_Text, ...], Field(strict=False), Expected("a list of strings")]
_Host = Annotated[str, _fitting(is_host), Expected("a plain host name or an IP address, without scheme or port")]
_Url = Annotated[str, _fitting(_is_url), Expected("an address such as https://host:7101")]
_Origins = Annotated[
    tuple[Annotated[str, _fitting(is_origin)], ...],
    Field(strict=False),
    Expected('a list of origins in lower case, without a path, as in ["https://host:7102"]'),
]
_PublicKey = Annotated[
    bytes, Field(min_length=32, max_length=32), BeforeValidator(_key), Expected("a public key, 64 hexadecimal digits")
]
_Pins = Annotated[
    tuple[Annotated[str, Field(pattern="^[0-9a-f]{64}$")], ...],
    Field(strict=False),
    Expected("a list of SHA-256 digests, 64 lower-case hexadecimal digits each"),
]
_FilePath = Annotated[Path, BeforeValidator(_path), Expected("a path")]
_PayKinds = Annotated[
    tuple[Literal["email", "iban", "text"], ...], Field(strict=False), Expected('a list of "email", "iban" and "text"')
]
_PushHosts = Annotated[
    tuple[Annotated[str, _fitting(is_push_host)], ...],
    Field(strict=False),
    Expected('a list of host names in lower case, with "*." before those whose parts are meant'),
]
_Certificates = Annotated[str, _fitting(str.isascii), Expected("certificates in PEM, or null")]
_Whole = Annotated[int, BeforeValidator(_whole)]  # 20.0 counts as 20
_Labels = Annotated[
    tuple[str, ...],
    Field(strict=False, min_length=1),
    _fitting(lambda names: len(set(names)) == len(names)),
    Expected('a list of different strings, as in ["sitting", "walking"]'),
]
_Loss = Annotated[str, _fitting(is_loss), Expected('"squared", "absolute", "huber" or package.module:function')]
_Layers = Annotated[
    tuple[Annotated[Any, BeforeValidator(_whole), _fitting(_is_layer)], ...],
    Field(strict=False),
    Expected('a list of widths and of layers in words, as in [32] or ["conv 8 9", "relu", "pool 4", 32]'),
]
_Learner = Annotated[
    SuppliedLearner | Annotated[str, _fitting(_is_learner)],
    Expected('"network", "conv", "softmax", package.module:Class, "functions" or "torch functions"'),
]
_Money = Annotated[str | int | Decimal, AfterValidator(_amount), Expected(f"an amount of money as text, {_AMOUNTS}")]
_Currency = Annotated[
    str,
    _fitting(lambda code: code in CURRENCIES.split()),
    Expected("a currency with two decimals by its ISO 4217 code, as in EUR"),
]
_Count = Annotated[int, Field(ge=1, le=_LARGEST_NUMBER)]
_PerSecond = Annotated[_Number, Field(ge=0.1, le=10**6)]
_People = Annotated[int, Field(ge=_FEWEST_PARTICIPANTS, le=_LARGEST_NUMBER)]
_Positive = Annotated[_Number, Field(gt=0, le=_LARGEST_NUMBER)]
_NotNegative = Annotated[_Number, Field(ge=0, le=_LARGEST_NUMBER)]
_Seconds = Annotated[_Number, Field(gt=0, le=10**9), Duration()]
_SomeSeconds = Annotated[_Number, Field(ge=0, le=10**9), Duration()]
_Window = Annotated[_Number, Field(gt=0, le=_LARGEST_NUMBER), Duration()]
_Late = Annotated[
    Annotated[_Number, Field(ge=0, le=_LARGEST_NUMBER)] | Literal["until published"],
    Duration((("no", 0.0),), more=UNTIL_PUBLISHED.__eq__, example=UNTIL_PUBLISHED),
]
_ClaimWindow = Annotated[_Number, Field(ge=0, le=10**12), Duration()]
_Moment = Annotated[
    str,
    BeforeValidator(_moment),
    _fitting(_is_moment),
    Expected("a date and time with its offset from UTC, as in 2026-12-01T18:00:00+01:00"),
]
_EXAMPLE_DAY = "day at 18:00 Europe/Berlin"
_Pace = Annotated[
    Annotated[_Number, Field(gt=0, le=10**9)] | Annotated[str, _fitting(_is_daily)],
    Duration(more=_is_daily, example=_EXAMPLE_DAY),
]
_Line = Annotated[str, Field(max_length=200), _fitting(str.isprintable), Expected("a line of at most 200 characters")]
_Choices = Annotated[
    tuple[Annotated[_Line, Field(min_length=1)], ...],
    Field(strict=False, min_length=2, max_length=7),
    _fitting(lambda names: len(set(names)) == len(names)),
]
_QuestionId = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,39}$")]
_Sensors = Annotated[
    tuple[Literal["speed", "loudness"], ...],
    Field(strict=False),
    _fitting(lambda names: len(set(names)) == len(names)),
    Expected('a list of "speed" and "loudness", each at most once'),
]
_Logo = Annotated[
    str, _fitting(_is_logo), Expected(f"a PNG picture of at most 32 kB and {_WIDEST_LOGO} x {_WIDEST_LOGO} pixels")
]
_Prose = Annotated[str, Field(max_length=2000), _fitting(_is_prose), Expected("plain text, at most 2,000 characters")]
_LongProse = Annotated[
    str, Field(max_length=20_000), _fitting(_is_prose), Expected("plain text, at most 20,000 characters")
]
_Version = Annotated[
    str, Field(max_length=40), _fitting(str.isprintable), Expected("a line of at most 40 characters, as in 2026-12")
]
_Wordings = Annotated[
    dict[_Line, _Line], Field(max_length=200), Expected('a table of at most 200 lines, as in walking = "Gehen"')
]
_Small = Annotated[_Whole, Field(ge=1, le=_LONGEST)]
# Of server steps: bounds within which no device computes an infinity, whatever the averages are.
_Rate = Annotated[_Number, Field(gt=0, le=1000)]
_Decay = Annotated[_Number, Field(ge=0, lt=1)]
_Floor = Annotated[_Number, Field(ge=1e-12, le=1000)]


_ROLE = "Whose settings these are."
_SP_KEY = "SP's public key, to check its word that a task has ended; without it, no such word is taken."


def _optional(example: object, description: str) -> Any:  # noqa: ANN401 -- as pydantic's Field
    """A setting that may be left out; the example is what a template shows."""
    return Field(default=None, examples=[example], description=description)


def _length_units(norm: float | None, decimals: int) -> int:
    return math.ceil(float(norm or 0) * float(10**decimals))


class TaskSettings(Settings):
    """The settings of one task."""

    profile: str = Field(
        default="shares",
        description='"shares": two servers, no key, little work; "hardened": the paper\'s cryptosystem with its leaks closed; '
        '"paper": as printed, which leaks.',
    )
    total: Literal["shown", "hidden"] = Field(
        default="shown", description='With "hidden", readers of the average do not learn how many samples there are.'
    )
    decimals: int = Field(default=6, ge=0, le=12, description="Decimals kept of each weight.")
    clip: _Positive = Field(default=16.0, description="Larger weights are clipped; the participant is told how many.")
    max_participants: _People = Field(default=36, description="The next one is refused.")
    max_samples: _Count = Field(default=100, description="The most samples of one participant in one round.")
    # None: 40 bits, by which masks hide what they cover, and in `paper` its 80. Fewer show something, more only take time.
    mask_bits: Annotated[int, Field(ge=20, le=256)] | None = None
    # None: 10^-decimals, the paper's epsilon, added to each distance so that none is zero. More would only even out pay.
    distance_floor: _NotNegative | None = None
    lanes: Annotated[int, Field(ge=0, le=_LARGEST_NUMBER)] | None = Field(
        default=1024,
        description="Size of the sketch that rewards rest on: more is more exact, and slower; 0: no rewards.",
    )
    pay: Literal["none", "fixed", "equal", "samples", "distance"] | None = _optional(
        "fixed",
        'What rewards follow; in the profile "shares": "fixed", so much for each accepted round; "equal", parts of a `budget`; '
        '"samples" or "distance". Else "distance", and no other.',
    )
    each: _Money | None = _optional("2.00", 'Of pay "fixed": for each round that counts a person\'s update.')
    bonus: _Money | None = _optional(
        "1.00",
        'Of pay "fixed": once, after the last round, for who was counted in every round that asked them: docs/incentives.md.',
    )
    weighting: Literal["samples", "equal"] = Field(
        default="samples",
        description='How people count: "samples", by how many they have; "equal", of "shares": everyone once, by `max_norm`.',
    )
    check: Literal["bounds", "none"] = Field(
        default="bounds",
        description='Of "shares": uploads out of bounds are left out; "none" only without rewards.',
    )
    max_norm: _Positive | None = _optional(
        5.0, 'Of "shares": the largest norm of an update; a device scales a larger one down. None: no norm bound.'
    )
    epsilon: Annotated[_Number, Field(gt=0, le=1000)] | None = _optional(
        8.0,
        'Of "shares" where everyone counts once: differential privacy of each person, over all rounds, by noise that each '
        "server adds. None: no noise.",
    )
    delta: Annotated[_Number, Field(ge=1e-12, le=0.01)] | None = _optional(
        0.00001, "Of `epsilon`: the chance that it does not hold, 0.00001 by default."
    )
    noise: Literal["any"] | None = _optional("any", "Of `epsilon`: take a task whose noise is longer than an update.")
    reference: bool = Field(
        default=False,
        description='Of "shares" where everyone counts once: the requester uploads an update of its own in each round, and who '
        "goes against it is left out.",
    )
    window: _Window = Field(
        default=3600.0,
        description="How long a round takes uploads; the task's plan may close it earlier.",
    )
    late: _Late = Field(
        default=0.0,
        description='How long after it late uploads are still taken, as in "10 min"; "no": not at all. Of "paper" also '
        '"until published": taken until the average is, and averaged again.',
    )
    min_participants: _People = Field(
        default=3,
        description="With fewer, a round waits one more window, then is given up and its budget returned. "
        "A phone refuses a task that says less than 5 here, unless its owner accepts it.",
    )
    per_round: _People | None = _optional(
        20,
        "So many people, drawn at random, are in each round; at half of its `window`, and if it waits another, others are "
        "drawn for who has not sent. None: all.",
    )
    # The most people that are checked together; a larger round is checked in parts of nearly the same size, and opened as one
    # sum. As many as make a part fit into a server's memory: fewer would save none, and cost a pass more each.
    cohort: Annotated[int, Field(ge=2, le=_LARGEST_NUMBER)] = 4096
    rounds: _Count = Field(default=5, description="How many rounds the task has.")
    budget: _Money | None = _optional("36.00", "For the rewards of one round, prepaid; without it, none are paid.")
    currency: _Currency = Field(default="EUR", description="Of all amounts, by its ISO 4217 code.")
    server_step: ServerStepName = Field(
        default="none",
        description='Of "shares": what readers make of a round\'s average; "none" takes it as it is: docs/shares.md.',
    )
    server_rate: _Rate = Field(default=1.0, description="Of a server step: its rate.")
    server_momentum: _Decay = Field(default=0.9, description="Of a server step: how much of the last steps stays.")
    server_squares: _Decay = Field(
        default=0.99,
        description='Of "fedadam" and "fedyogi": how much of the last squares stays; above the square of the momentum.',
    )
    server_floor: _Floor = Field(
        default=0.001, description='Of all but "fedavgm": added to the root that a step is divided by.'
    )
    key_bits: int = Field(
        default=2048, ge=2, le=_LONGEST_KEY, multiple_of=2, description="Key length; less than 2048 is for tests."
    )
    # Of each server's noise, in units: the last, since it follows from the others where nobody names it.
    sigma: Annotated[int, Field(ge=1, le=_LARGEST_SIGMA)] | None = Field(default=None, validate_default=True)

    @classmethod
    def of(cls, /, **settings: Any) -> Self:  # noqa: ANN401 -- each value is checked by its name
        """From keywords; a length of time is seconds, or text as in a file."""
        return cls(**in_seconds(cls, settings))

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        """As pydantic shows it, but noise with its unit."""
        for name, value in super().__repr_args__():
            if name == "sigma" and self.sigma is not None:
                own = f"{self.sigma / 10**self.decimals:.4g} in the model's own"
                yield name, f"{self.sigma} units of 10^-{self.decimals}, which are {own}"
            else:
                yield name, value

    @property
    def key(self) -> str:
        """The key's length as everyone is told it: a short one never without the warning."""
        if self.profile == "shares":
            return "no key"
        return f"{self.key_bits} bits" + (", INSECURE TEST KEY" if self.is_insecure else "")

    @property
    def is_insecure(self) -> bool:
        """Whether the key is one for tests."""
        return self.profile != "shares" and self.key_bits < _SHORTEST_SECURE

    @property
    def length_units(self) -> int:
        """Where everyone counts once, the largest length of an update in whole units: every device computes the same one."""
        return _length_units(self.max_norm, self.decimals)

    @property
    def noise_ratio(self) -> float:
        """Of a server's noise in one entry to the longest update: the z of differential privacy."""
        return (self.sigma or 0) / max(1, self.length_units)

    def epsilon_spent(self, opened: int) -> float:
        """What so many opened rounds have cost each person, of `epsilon`."""
        if self.sigma is None:
            return 0.0
        rho = accounting.rho_of(self.length_units, self.sigma, opened)
        return accounting.epsilon_of(rho, float(self.delta or DELTA))

    @property
    def each_round(self) -> int:
        """Millionths for a person in a round, of pay `fixed`; else 0."""
        return to_millionths(self.each or 0) if self.pay == "fixed" else 0

    @property
    def bonus_each(self) -> int:
        """Millionths of a bonus, of pay `fixed`; else 0."""
        return to_millionths(self.bonus or 0) if self.pay == "fixed" else 0

    @property
    def most_earned(self) -> int:
        """Millionths that nobody earns more than in all rounds: at most a round's whole budget in each."""
        return self.rounds * (self.each_round or to_millionths(self.budget or 0)) + self.bonus_each

    @property
    def bonus_budget(self) -> int:
        """Millionths for the bonuses of all who can get one: each was in one round at least."""
        return self.bonus_each * min(self.max_participants, self.rounds * self.most_in_round)

    @property
    def grace(self) -> float:
        """Seconds after a round's window in which late uploads are taken; an average is held for one window more."""
        return self.window if isinstance(self.late, str) else self.late

    @property
    def most_in_round(self) -> int:
        """How many people an average can be of."""
        return self.max_participants if self.per_round is None else self.per_round

    @property
    def most_devices(self) -> int:
        """How many may join, all devices of everyone."""
        return self.max_participants * MOST_DEVICES

    @property
    def most_cohorts(self) -> int:
        """Parts that the largest round is checked in."""
        return -(-self.most_in_round // self.cohort)

    @property
    def floor_units(self) -> int:
        """`distance_floor` at scale 10^2L, where squared distances live; the paper's epsilon is 10^-L."""
        if self.distance_floor is None:
            return int(10**self.decimals)
        return round(self.distance_floor * 10.0 ** (2 * self.decimals))

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.min_participants > self.max_participants:
            raise ValueError(
                f"`min_participants` is {self.min_participants}; expected at most `max_participants`, "
                f"which is {self.max_participants}"
            )
        if self.per_round is not None and not self.min_participants <= self.per_round <= self.max_participants:
            raise ValueError(
                f"`per_round` is {self.per_round}; expected `min_participants` to `max_participants`, which are "
                f"{self.min_participants} and {self.max_participants}"
            )
        if self.clip * 10**self.decimals >= _LARGEST_SCALED:
            raise ValueError(
                f"`clip` is {self.clip}; expected a number below 2^53 / 10^{self.decimals}, as `decimals` says"
            )
        if self.floor_units < 1:
            raise ValueError(f"`distance_floor` is {self.distance_floor}; expected at least 10^-{2 * self.decimals}")
        return self

    @model_validator(mode="after")
    def _averages_again_as_printed(self) -> Self:
        """Where servers keep what they learn, two averages that differ by one person show that person."""
        if self.late == UNTIL_PUBLISHED and self.profile != "paper":
            raise ValueError(
                f'`late` is "{UNTIL_PUBLISHED}", which is of the profile paper: give a length of time, or "no"'
            )
        return self

    @model_validator(mode="after")
    def _reference_is_possible(self) -> Self:
        """Whether an update is in line shows only where all are as long as they may be, and in a sketch that is fine enough."""
        if not self.reference:
            return self
        if self.epsilon is not None:
            raise ValueError(
                "`reference` lets the requester ask about each person, which `epsilon` rules out: drop one of them"
            )
        needed = {
            'profile = "shares"': self.profile == "shares",
            'weighting = "equal"': self.weighting == "equal",
            'check = "bounds"': self.check == "bounds",
            f"at least {LEAST_LANES} `lanes`": (self.lanes or 0) >= LEAST_LANES,
        }
        if missing := [words for words, found in needed.items() if not found]:
            raise ValueError(f"`reference` needs {', '.join(missing)}")
        return self

    @model_validator(mode="before")
    @classmethod
    def _budget_of_fixed_pay(cls, given: dict[str, Any]) -> dict[str, Any]:
        """What a round is prepaid with follows from what it pays each, of the most people that it can have."""
        each, people = given.get("each"), given.get("per_round") or given.get("max_participants", 36)
        if given.get("pay") != "fixed" or given.get("budget") is not None or not isinstance(each, str | int | Decimal):
            return given
        if type(people) is not int:
            return given
        with contextlib.suppress(SettingsError):  # which is said of the amount itself
            budget = f"{from_millionths(people * to_millionths(each)):f}"
            to_millionths(budget)  # or it is no amount: `_fixed_pay_fits` says so
            return {**given, "budget": budget}
        return given

    @model_validator(mode="after")
    def _fixed_pay_fits(self) -> Self:
        """Every party computes it again."""
        if self.pay != "fixed":
            return self
        if self.each is None or not self.each_round:
            raise ValueError('pay = "fixed" pays `each` round: say how much, as in each = "2.00"')
        if self.budget is None:
            in_round = "max_participants" if self.per_round is None else "per_round"
            raise ValueError(
                f"lower `{in_round}` or `each`: together they make a round cost more than any amount of money may be"
            )
        if to_millionths(self.budget) != self.each_round * self.most_in_round:
            raise ValueError('with pay = "fixed", `budget` follows from `each` and how many people a round can have')
        return self

    @model_validator(mode="before")
    @classmethod
    def _decimals_for_noise(cls, given: dict[str, Any]) -> dict[str, Any]:
        """Where noise is added and nobody has set `decimals`, the most that it leaves room for."""
        norm = given.get("max_norm")
        if given.get("epsilon") is None or "decimals" in given or not isinstance(norm, int | float) or not norm > 0:
            return given
        fitting = (decimals for decimals in range(12, 0, -1) if norm * 10.0**decimals <= _LONGEST_UPDATE)
        return {**given, "decimals": next(fitting, 0)}

    @field_validator("sigma")
    @classmethod
    def _least_noise(cls, sigma: int | None, info: ValidationInfo) -> int | None:
        """What `epsilon` needs, where nobody says how much; None if no number here holds it."""
        others = info.data
        if (
            sigma is not None
            or others.get("epsilon") is None
            or not {"max_norm", "decimals", "rounds", "delta"} <= others.keys()
        ):
            return sigma
        length = _length_units(others["max_norm"], others["decimals"])
        epsilon, delta = float(others["epsilon"]), float(others["delta"] or DELTA)
        return accounting.least_sigma(length, others["rounds"], epsilon, delta, _LARGEST_SIGMA)

    @model_validator(mode="after")
    def _noise_is_enough(self) -> Self:
        """Every party computes it again: less noise than `epsilon` needs is refused by each."""
        if self.epsilon is None:
            if any(value is not None for value in (self.sigma, self.noise, self.delta)):
                raise ValueError("`delta` and `noise` have no effect without `epsilon`; leave them out")
            return self
        if self.weighting != "equal" or self.max_norm is None:
            raise ValueError('`epsilon` needs weighting = "equal" and `max_norm`, which bound what one person changes')
        if self.length_units > _LONGEST_UPDATE:
            raise ValueError(
                f"with `epsilon`, `max_norm` in units of 10^-decimals is at most {_LONGEST_UPDATE}, and it is "
                f"{self.length_units}: leave `decimals` out, or lower it"
            )
        if self.sigma is None:
            raise ValueError(
                f"`epsilon` is {self.epsilon}: over {self.rounds} rounds that takes more noise than numbers here hold. "
                "Raise it, or have fewer rounds"
            )
        asked = self.length_units, self.rounds, float(self.epsilon), float(self.delta or DELTA)
        if not accounting.is_enough(self.sigma, *asked):
            raise ValueError(
                f"noise of {self.sigma} units is too little for epsilon = {self.epsilon} over {self.rounds} rounds"
            )
        return self

    @model_validator(mode="after")
    def _steps_by_what_is_used(self) -> Self:
        used = SERVER_STEPS[self.server_step]
        if "server_squares" in used and self.server_squares <= self.server_momentum * self.server_momentum:
            raise ValueError(
                f"`server_squares` is {self.server_squares}; expected more than the square of `server_momentum`, which is "
                f"{self.server_momentum}: else a weight may leap when its updates become small"
            )
        return self


class PlanSettings(Settings):
    """When people join and when rounds are, by SP's clock. Left at its defaults it is a trial, which runs as fast as it can."""

    enrol_until: _Moment | None = _optional(
        "2026-12-01T18:00:00+01:00", "Nobody joins later; if too few have joined by then, the task ends."
    )
    start_at: _Moment | None = _optional("2026-12-02T18:00:00+01:00", "No round opens earlier.")
    start_with: _People | None = _optional(
        50, "The first round waits until so many have joined, or `enrol_until`; by default, `min_participants`."
    )
    every: _Pace | None = _optional(
        _EXAMPLE_DAY,
        'Rounds open at this time of day; or so long apart at least, as in "7 days". None: one after the other.',
    )
    closes: Literal["everyone", "deadline"] = Field(
        default="everyone",
        description='When a round closes: "everyone", once everyone who has joined has sent, for trials; "deadline", when its '
        "`window` ends.",
    )
    goal: _People | None = _optional(
        40, "A round takes so many uploads, then closes; later ones are not used, and paid by `unused_pay` alone."
    )
    unused_pay: _Money | None = _optional(
        "0.20",
        "For an upload that comes after `goal`, in its round's `window` and before the task has ended; prepaid beside "
        "`budget`; without it, nothing.",
    )
    # A month: a transfer from abroad, a holiday, a server that is repaired. That a round is extended is counted beside it.
    room: _SomeSeconds = Field(
        default=30 * DAY,
        description="How long rounds may take beyond the plan, for a late deposit, pauses, rounds that are tried again, "
        "an absent server; then the task ends.",
    )

    @property
    def apart(self) -> float | None:
        """Seconds from the opening of one round to that of the next, at least."""
        return None if isinstance(self.every, str) else self.every

    @property
    def daily(self) -> str | None:
        """The time of day at which rounds open, and where it is that time."""
        return self.every.removeprefix(_EACH_DAY) if isinstance(self.every, str) else None

    def require(self, settings: TaskSettings) -> Self:
        """Refuse what this task cannot keep to."""
        least, most = settings.min_participants, settings.max_participants
        in_round = "max_participants" if settings.per_round is None else "per_round"
        bounds = (
            ("start_with", self.start_with, "max_participants", most),
            ("goal", self.goal, in_round, settings.most_in_round),
        )
        for name, people, bound, largest in bounds:
            if people is not None and not least <= people <= largest:
                raise SettingsError(
                    f"`{name}` is {people}; expected `min_participants` to `{bound}`, {least} to {largest}"
                )
        if self.unused_pay is not None and (self.goal is None or settings.budget is None):
            raise SettingsError(
                "`unused_pay` is for uploads beyond `goal`, of a task that pays: set `goal` and `budget`"
            )
        return self

    @property
    def each_unused(self) -> int:
        """Millionths for an upload that is not used."""
        return to_millionths(self.unused_pay or 0)

    def unused_budget(self, settings: TaskSettings) -> int:
        """What a round keeps for uploads that are not used, in millionths."""
        return self.each_unused * (settings.most_in_round - (self.goal or settings.most_in_round))

    def round_cost(self, settings: TaskSettings, *, first: bool = False) -> int:
        """What is prepaid for a round, in millionths; with the first, all bonuses."""
        bonuses = settings.bonus_budget if first else 0
        return to_millionths(settings.budget or 0) + self.unused_budget(settings) + bonuses

    def whole_cost(self, settings: TaskSettings) -> int:
        """What the whole task is prepaid with."""
        return settings.rounds * self.round_cost(settings) + settings.bonus_budget

    def needed(self, settings: TaskSettings, *, first: bool, over: bool = False) -> int:
        """How many must have joined before a round opens; `over`: nobody joins any more."""
        return (None if over or not first else self.start_with) or settings.min_participants

    @property
    def enrolment_end(self) -> float:
        """Seconds since 1970."""
        return math.inf if self.enrol_until is None else moment(self.enrol_until)

    def opening(self, ready: float, before: float | None) -> float:
        """When a round opens for which everything was ready at this moment, after one that opened at `before`."""
        earliest = ready if self.start_at is None else max(ready, moment(self.start_at))
        if before is not None and self.apart is not None:
            earliest = max(earliest, before + self.apart)
        return earliest if self.daily is None else _next_time(*_daily(self.daily), earliest)

    def with_enrolment(self, now: float) -> Self:
        """Of a plan that gives no time to begin: people have a month to join, so that everyone knows when it will be over."""
        if self.enrol_until is not None or self.start_at is not None:
            return self
        end = datetime.datetime.fromtimestamp(math.ceil(now + _ENROLMENT), datetime.UTC)
        return self.model_copy(update={"enrol_until": end.isoformat()})

    def rounds_until(self, settings: TaskSettings, now: float) -> int:
        """When the last round of a task that is made now is over at the latest, in seconds since 1970: each begins as late as
        the plan lets it and is extended once, and there is `room`."""
        longest = 2 * settings.window + settings.grace
        apart, slack = max(longest, self.apart or 0.0), 0.0
        if self.daily is not None:  # the next such time after a round; a day more, for clocks that are moved
            apart, slack = (longest // DAY + 1) * DAY, DAY
        begin = max(now, moment(self.enrol_until)) if self.enrol_until is not None else now
        rounds = (settings.rounds - 1) * apart + longest + slack
        end = math.ceil(self.opening(begin, None) + rounds + self.room)
        if end > LAST_DATE:
            raise SettingsError(
                "these rounds would never end: set fewer `rounds`, or a shorter `window`, `late`, `every` or `room`"
            )
        return end


def moment(text: str) -> float:
    return datetime.datetime.fromisoformat(text).timestamp()


def _next_time(clock: datetime.time, zone: datetime.tzinfo, earliest: float) -> float:
    """The first moment from then on at which it is that time there."""
    day = datetime.datetime.fromtimestamp(earliest, zone).date()
    days = (day + datetime.timedelta(days) for days in range(3))
    return next(at for one in days if (at := datetime.datetime.combine(one, clock, zone).timestamp()) >= earliest)


class TaskOptions(TypedDict, total=False):
    """The settings of a task by their names, as functions take them: `TaskSettings` says what each means, and checks it."""

    total: Literal["shown", "hidden"]
    decimals: int
    clip: float
    max_participants: int
    max_samples: int
    lanes: int | None
    pay: Literal["none", "fixed", "equal", "samples", "distance"] | None
    each: str | int | Decimal | None
    bonus: str | int | Decimal | None
    weighting: Literal["samples", "equal"]
    check: Literal["bounds", "none"]
    max_norm: float | None
    epsilon: float | None
    delta: float | None
    noise: Literal["any"] | None
    window: float | str
    late: float | str
    min_participants: int
    per_round: int | None
    budget: str | int | Decimal | None
    currency: str
    server_step: ServerStepName
    server_rate: float
    server_momentum: float
    server_squares: float
    server_floor: float
    key_bits: int


def option_words() -> str:
    """Each of these with its help, a line each."""
    fields = TaskSettings.model_fields
    return "".join(f"    {name}: {fields[name].description}\n" for name in TaskOptions.__annotations__)


class QuestionSettings(SettingsTable):
    """A question at the end of each recording. Its answer stays on the phone: what the model learns, or a part of its input."""

    id: _QuestionId
    text: Annotated[_Line, Field(min_length=1)]
    choices: _Choices
    use: Literal["label", "feature"] = "feature"


def _are_questions(questions: tuple[QuestionSettings, ...]) -> bool:
    ids = {question.id for question in questions}
    return len(ids) == len(questions) and sum(question.use == "label" for question in questions) <= 1


_Questions = Annotated[
    tuple[QuestionSettings, ...],
    Field(strict=False, max_length=3),
    _fitting(_are_questions),
    Expected(
        "at most 3 tables [[training.questions]], each with an id of its own in small letters, a text, 2 to 7 choices, "
        'and use, "label" (of one at most) or "feature"'
    ),
]


class TrainingSettings(Settings):
    """A task's [training] section: what every participant's device does. The platform does not look inside."""

    learner: _Learner = Field(
        default="network",
        description='What learns: "network", "conv" or "softmax"; code of your own as package.module:Class, which participants '
        'install; "functions" or "torch functions", which everyone brings to `crowdfl.join`: docs/learning.md.',
    )
    layers: _Layers = Field(
        default=(32,),
        description="The network's layers but the last: a width with ReLU, or a layer in words: docs/learning.md.",
    )
    features: Literal["motion", "flat", "spectral", "windows"] = Field(
        default="motion",
        description='What a network is fed: "motion", nine numbers per channel; "spectral", 30 frequencies, mean and deviation '
        'of each channel; "flat", the samples in a row; "windows", the samples as (window, channels), for code of your own.',
    )
    scale_inputs: bool = Field(
        default=False,
        description="Scale each of these numbers by its mean and deviation over the person's own training windows.",
    )
    target: Literal["label", "value"] = Field(
        default="label", description='What is learned: "label", one of `labels`; "value", a number for each name there.'
    )
    labels: _Labels = Field(description='The labels to tell apart; with target "value", the names of the values.')
    loss: _Loss | None = _optional(
        "huber",
        "Of values: squared, absolute or huber; or code of your own, package.module:function, which participants install.",
    )
    proximal: float = Field(
        default=0.0,
        ge=0,
        lt=2**63,
        description="FedProx: how strongly training is held near the model that the round starts from; 0: not at all.",
    )
    channels: _Small = Field(default=6, description="Channels of a sample: 3, acceleration; 6, rotation too.")
    sensors: _Sensors = Field(
        default=(),
        description="Sensors beside motion: speed (by GPS), loudness (by the microphone). Each adds its mean and deviation "
        "in a window to the features.",
    )
    questions: _Questions = Field(
        default=(),
        description="What the phone asks at the end of a recording, as [[training.questions]]: docs/learning.md.",
    )
    standardise: bool = Field(default=False, description="Scale channels by the person's own mean and deviation.")
    window_samples: _Small = Field(default=100, description="Samples in a window.")
    step: Annotated[_Whole, Field(ge=1, lt=2**63)] | None = _optional(
        25, "Samples from one window to the next; a quarter of a window."
    )
    held_out: float = Field(default=0.3, gt=0, lt=1, description="Share of a recording that is tested on, at its end.")
    hertz: float = Field(
        default=50.0, gt=0, lt=2**63, description="Samples per second; recordings are resampled to it."
    )
    epochs: _Whole = Field(default=20, ge=0, le=_LONGEST, description="Passes over the data in a round.")
    batch: _Whole = Field(default=32, ge=1, lt=2**63, description="Samples per step of training.")
    rate: float = Field(default=0.005, gt=0, lt=2**63, description="The learning rate.")
    seed: _Whole = Field(default=0, ge=0, lt=2**63, description="The initial weights follow from it.")

    @model_validator(mode="after")
    def _fits_its_target(self) -> Self:
        if self.target == "label" and self.loss in LOSSES:
            raise ValueError(
                f'`loss` is {self.loss!r}, which is of values; with labels leave it out, or say target = "value"'
            )
        if self.features == "windows" and self.scale_inputs:
            raise ValueError('`scale_inputs` is for features in a row; with features = "windows" say `standardise`')
        if (self.sensors or self.questions) and self.features not in ("motion", "spectral"):
            raise ValueError('`sensors` and `questions` add to features: say features = "motion" or "spectral"')
        asked = next((question for question in self.questions if question.use == "label"), None)
        if asked and (asked.choices != self.labels or self.target == "value"):
            raise ValueError(
                f"the choices of `{asked.id}` are what is learned: `labels` must be the same, in this order"
            )
        if self.target == "value" and self.learner == "softmax":
            raise ValueError('softmax tells labels apart; for values say learner = "network" (layers = [] is linear)')
        return self


def require_claim_window(seconds: float, least: float) -> None:
    """What is not claimed in time returns to the requester, so that a platform sets a least time."""
    if seconds < least:
        raise SettingsError(
            f"`claim_window` is {duration(seconds)}, and rewards must be claimable for at least {duration(least)} after "
            "the end: give people more time, or ask the platform for a lower `min_claim_window`"
        )


class AskerSettings(Settings):
    """Who asks people to take part, in their own words: signed with the task, shown before joining, and proven by nothing."""

    name: _Line = Field(default="", description="Who asks, as people know them.")
    institution: _Line = Field(default="", description="For which institution.")
    contact: _Line = Field(default="", description="Whom people can ask: an e-mail address, a telephone number.")
    approval: _Line = Field(default="", description="The ethics committee's approval, and its number.")
    logo: _Logo = Field(
        default="", description="A picture: a PNG file of at most 32 kB and 512 x 512 pixels, beside the task file."
    )


class ConsentSettings(Settings):
    """What people agree to before they join, each by a signature of their own; left empty, they are asked for none."""

    version: _Version = Field(default="", description="The version of the text, as your records name it.")
    text: _LongProse = Field(
        default="", description="The text, whole: whoever joins has it on the device and signs it."
    )

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if bool(self.version) != bool(self.text.strip()):
            raise ValueError("a consent has a `version` and a `text`: give both, or neither")
        return self


class TextsSettings(Settings):
    """What people read, in another language; what is left out they read as the task itself says it."""

    purpose: _Prose = Field(default="", description="The purpose.")
    terms: _Prose = Field(default="", description="The terms.")
    readers: _Prose = Field(default="", description="Who reads the averages and the model.")
    consent: _LongProse = Field(default="", description="The text of [consent], of the same version.")
    words: _Wordings = Field(default={}, description='Labels, by the task\'s own, as in walking = "Gehen".')


class TaskFile(Settings):
    """A task file, as `crowdfl task new` prints it."""

    purpose: str = Field(description="What the model is for; whoever is invited reads it before joining.")
    terms: str = Field(description="On which terms people take part.")
    readers: str = Field(description="Who reads the averages and the final model.")
    language: str = Field(default="en", description="The language of these texts, as in de, zh-Hans or pt-BR.")
    claim_window: _ClaimWindow | None = _optional(
        7 * DAY,
        "How long after the last day of rounds rewards can be claimed; then the rest is returned.",
    )
    recruit: Literal["invitations", "open"] = Field(
        default="invitations",
        description='Who lets people in: "invitations", you alone, by invitations that you hand out; "open", SP too: it '
        "lists the task, and can then be a reader and everybody else in it.",
    )
    settings: dict[str, Any] = Field(default={}, description="What every profile has.")
    shares: dict[str, Any] | None = Field(
        default=None, description="The profile: two servers, no key, little work. One of these three tables is there."
    )
    hardened: dict[str, Any] | None = Field(
        default=None, description="The profile: the paper's cryptosystem with its leaks closed."
    )
    paper: dict[str, Any] | None = Field(default=None, description="The profile: as printed, which leaks.")
    training: dict[str, Any] = Field(description="What every participant's device does.")
    who: dict[str, Any] = Field(default={}, description="Who asks.")
    plan: dict[str, Any] = Field(default={}, description="When people join and when rounds are.")
    consent: dict[str, Any] = Field(default={}, description="What people agree to by a signature.")
    texts: dict[str, Any] = Field(default={}, description="The same in other languages, as in [texts.de].")


class PeerSettings(SettingsTable):
    """Another service."""

    url: _Url = Field(description="Where it is.")
    token: _FilePath = Field(description="The file with the token that it knows this role by.")


class SpPin(SettingsTable):
    """SP's TLS keys, as a service that SP calls knows them."""

    sp: _Pins = Field(default=(), description="SHA-256 of SP's TLS public keys; two while SP renews its key.")


class ServerPins(SpPin):
    """The same of both servers."""

    csp: _Pins = Field(default=(), description="The same of CSP's.")


class ClusterSettings(SettingsTable):
    """A role's own Dask cluster: docs/cluster.md."""

    scheduler: _Text = Field(description="This role's own scheduler, tls://host:port.")
    ca: _FilePath | None = _optional("cluster.pem", "Whom the cluster trusts.")
    certificate: _FilePath | None = _optional("cluster.pem", "The cluster's certificate.")
    key: _FilePath | None = _optional("cluster.key", "The private key of the certificate.")
    plain_tcp: bool = False  # as the service's `plain_http`
    patience: float = 30.0  # seconds without any worker before a batch gives up


class S3Settings(SettingsTable):
    """A bucket that holds a role's uploads, answers and sealed keys instead of its folder: docs/deploy.md."""

    bucket: _Text = Field(description="A bucket that exists.")
    prefix: _Text = Field(default="crowdfl", description="What names there begin with.")
    endpoint: _Url | None = _optional("https://s3.example", "Where the server is, if not Amazon's.")
    region: _Text = Field(default="us-east-1", description="The bucket's region.")


class ServiceSettings(Settings):
    """What every service has."""

    data: Path  # this role's folder, its own alone
    host: _Host = Field(description="The name or address that others reach this service by.")
    listen: _Host | None = _optional("192.0.2.1", "The address to bind to, if it is not `host`.")
    port: int = Field(ge=0, le=65535, description="The port; 0 takes a free one.")
    database: _Text | None = _optional(
        "postgresql+psycopg://...", "A database URL; SQLite in this folder if not given."
    )
    certificate: _FilePath | None = _optional("tls.pem", "The service's certificate.")
    key: _FilePath | None = _optional("tls.key", "The private key of the certificate.")
    plain_http: bool = Field(default=False, description="Serve and call without TLS; allowed on loopback only.")
    ca: _FilePath | None = _optional("ca.pem", "Whom to trust about peers; the system's authorities if not given.")
    passphrase_file: _FilePath | None = _optional(
        "passphrase", "The file with the passphrase that seals keys: docs/formats.md."
    )
    connections: Annotated[int, Field(ge=16, le=100_000)] = Field(
        default=2000, description="The most connections at once; fewer if the limit of open files is lower."
    )
    connections_per_address: Annotated[int, Field(ge=0, le=100_000)] = Field(
        default=256,
        description="Of these, the most from one address; 0: no limit, as behind a reverse proxy that limits them itself.",
    )
    tracing: _Url | None = _optional(
        "http://127.0.0.1:4318", "Where an OpenTelemetry collector takes spans by OTLP over HTTP: docs/operations.md."
    )
    insecure_test_key: bool = Field(default=False, description="Allow keys below 2048 bits, for tests.")

    @property
    def address(self) -> str:
        """What the socket is bound to."""
        return self.listen or self.host

    @property
    def database_url(self) -> str:
        return self.database or f"sqlite:///{self.data / 'state.db'}"

    @model_validator(mode="after")
    def _has_both_or_neither(self) -> Self:
        if (self.certificate is None) != (self.key is None):
            raise ValueError("`certificate` and `key` go together; give both, or neither")
        return self


class TaskLimits(Settings):
    """What a service accepts of a new task. Tasks that are there already go on."""

    max_rounds: _Count = Field(default=1000, description="Rounds of a new task.")
    max_claim_window: _Window = Field(default=366 * DAY, description="The longest `claim_window` of a new task.")
    max_task_time: _Window = Field(
        default=1830 * DAY,
        description="How long a new task may last, from its creation to its last day of claims.",
    )
    max_dealt_bytes: _Count = Field(
        default=100_000_000_000, description="Bytes that KGC deals to one server for a new task, in all its rounds."
    )


class BrowserSettings(Settings):
    """What a service lets browsers do that have a page of another origin open."""

    web_origins: _Origins = Field(
        default=(), description="Pages of these origins may call this service from a browser: docs/inviting-phones.md."
    )


class KgcSettings(TaskLimits, BrowserSettings, ServiceSettings):
    """The key generation centre."""

    role: Literal["kgc"] | None = _optional("kgc", _ROLE)

    kgc_key: _PublicKey | None = Field(default=None, description="KGC's own public key; not needed here.")
    sp_key: _PublicKey | None = _optional("00" * 32, _SP_KEY)
    pins: ServerPins | None = Field(
        default=None,
        description="The keys that SP and CSP must prove, or they get no key share: docs/running.md.",
    )

    @property
    def known_keys(self) -> dict[str, tuple[str, ...]]:
        """By role; of a role that is not known yet, none."""
        return dict(self.pins or ServerPins())


class ComputingSettings(ServiceSettings):
    """What SP and CSP have in common."""

    kgc_key: _PublicKey = Field(description="KGC's public key, to check what KGC signed.")
    compute: Literal["threads", "cuda", "dask"] = Field(
        default="threads", description="Where to compute: docs/gpu.md and docs/cluster.md say what each needs."
    )
    constant_time: bool = Field(
        default=False, description="Powers by key shares take the same time whatever the share: docs/constant-time.md."
    )
    kgc: PeerSettings = Field(description="Where KGC is.")
    dask: ClusterSettings | None = Field(
        default=None, description='A cluster of this role\'s own, for compute = "dask".'
    )
    guard: _FilePath | None = _optional(
        "/mnt/another-disk/guard",
        "The folder with this server's notes of its steps, away from the database and from what snapshots of it cover: "
        "docs/backup.md. In this folder, or in the bucket of `s3`, if not given.",
    )
    s3: S3Settings | None = Field(
        default=None,
        description="Where uploads, answers and sealed keys are kept, if not in this folder.",
    )

    @model_validator(mode="after")
    def _seals_what_others_keep(self) -> Self:
        if self.s3 is not None and self.passphrase_file is None:
            raise ValueError("whoever runs the bucket of `s3` could read key shares: seal them with `passphrase_file`")
        return self

    @model_validator(mode="after")
    def _can_use_its_cluster(self) -> Self:
        if self.compute == "dask" and self.dask is None:
            raise ValueError('`dask` is missing; compute = "dask" needs this role\'s own scheduler, in a table [dask]')
        return self


class CspSettings(ComputingSettings):
    """The computation server."""

    role: Literal["csp"] | None = _optional("csp", _ROLE)

    sp_key: _PublicKey | None = _optional("00" * 32, _SP_KEY)
    pins: SpPin | None = Field(
        default=None, description="The key that SP must prove, or it gets no answer: docs/running.md."
    )

    @property
    def known_keys(self) -> dict[str, tuple[str, ...]]:
        """As KGC's."""
        return dict(self.pins or SpPin())


class SpSettings(TaskLimits, BrowserSettings, ComputingSettings):
    """The sensing platform."""

    role: Literal["sp"] | None = _optional("sp", _ROLE)

    tick: _Seconds = Field(default=1.0, description="Between looks at the rounds.")
    lease: _Seconds = Field(default=30.0, description="How long a killed process's work waits for the next.")
    csp_patience: _Seconds = Field(
        default=DAY,
        description="How long to wait for an absent CSP; then the round is given up, its budget returned.",
    )
    payer_key: _PublicKey | None = _optional(
        "00" * 32, "Whom people tell where to be paid, as `crowdfl payer key` shows it; if not given, nobody is asked."
    )
    pay_kinds: _PayKinds = Field(
        default=("email", "iban"), description='How people can be paid: "email" (a voucher), "iban", "text" (in words).'
    )
    push_hosts: _PushHosts = Field(
        default=("fcm.googleapis.com", "*.push.services.mozilla.com", "*.notify.windows.com", "*.push.apple.com"),
        description="Push services that reminders may go to; none: no reminders. One with a port, such as localhost:9000, is "
        "for trials with `plain_http`.",
    )
    on_paid: _Texts = Field(default=(), description="A program to run for each payment: docs/running.md.")
    on_paid_time: _Seconds = Field(
        default=60.0, description="How long it may take; after that nobody knows whether it paid."
    )
    min_claim_window: _ClaimWindow = Field(
        default=DAY, description="The least `claim_window` that a task with rewards must have."
    )
    max_clock_jump: _Seconds = Field(
        default=300.0,
        description="A clock that jumps further, or is further from a peer's, closes no round until it is confirmed.",
    )
    looks_per_second: _PerSecond = Field(
        default=50.0,
        description="Of all idle phones of a task together: docs/operations.md says what fewer of them cost.",
    )
    max_tasks: _Count = Field(default=100, description="Tasks of one requester that are not settled yet.")
    max_joins: Annotated[int, Field(ge=1, le=100_000)] = Field(
        default=120, description='Of a task with recruit = "open", places that are given to people in an hour.'
    )
    max_joins_per_address: Annotated[int, Field(ge=0, le=100_000)] = Field(
        default=20,
        description="Of these, in all such tasks, those given to one address; 0: no limit, as behind a reverse proxy that "
        "limits them itself.",
    )
    max_initial_bytes: _Count = Field(
        default=2**30,
        description="The size of a task's initial weights, 8 bytes for each parameter: docs/own-model.md.",
    )
    phone_connect: _Origins = Field(
        default=(),
        description="What the phone's page may call besides SP and `kgc.url`: KGC, where people reach it by another name.",
    )
    csp: PeerSettings = Field(description="Where CSP is.")

    @model_validator(mode="after")
    def _says_nothing_idle(self) -> Self:
        for name, needed in (("pay_kinds", "payer_key"), ("on_paid_time", "on_paid")):
            if getattr(self, name) != type(self).model_fields[name].default and not getattr(self, needed):
                raise ValueError(f"`{name}` would do nothing here: it needs `{needed}`. Leave it out, or set that")
        return self

    @model_validator(mode="after")
    def _reminds_over_https(self) -> Self:
        if not self.plain_http and any(":" in host for host in self.push_hosts):
            raise ValueError("`push_hosts` names a port: that is for trials with `plain_http` alone")
        return self


class RequesterSettings(Settings):
    """A requester's settings file."""

    role: Literal["requester"] | None = _optional("requester", _ROLE)
    name: _Text = Field(default="requester", description="The name that KGC and SP know this requester by.")

    kgc: _Url = Field(description="Where KGC is.")
    sp: _Url = Field(description="Where SP is.")
    ca: _FilePath | None = _optional("ca.pem", "Whom to trust; if not given, the system's.")
    plain_http: bool = Field(default=False, description="Call without TLS; allowed on loopback only.")
    kgc_key: _PublicKey = Field(description="KGC's public key, to check what KGC signed.")
    sp_key: _PublicKey | None = _optional("...", "SP's public key, for invitations; as SP tells it if not given.")
    kgc_token: _FilePath = Field(description="The file with the token that KGC knows.")
    sp_token: _FilePath = Field(description="The file with the token that SP knows.")
    payer_key: _PublicKey | None = _optional(
        "00" * 32, "The key of whoever pays people out, as its holder tells you: tasks name it, and SP takes no other."
    )
    phone: _Url | None = _optional(
        "https://host:7102/join/", "Where the page for phones is, for links; SP's own `/join/` if not given."
    )
    insecure_test_key: bool = Field(default=False, description="Allow keys below 2048 bits, for tests.")


class ParticipantSettings(Settings):
    """A participant's invitation file, JSON as `crowdfl task invite` writes it, or `crowdfl participant tasks`."""

    model_config = ConfigDict(extra="ignore")  # a newer requester may say more

    task: _Text = Field(description="The task's id.")
    invitation: Annotated[str, _fitting(str.isprintable), Expected("a string")] = Field(
        repr=False,
        description="The signed invitation with its key, for one person; empty: SP gives one, of a task that it lists.",
    )
    kgc: _Url = Field(description="Where KGC is.")
    sp: _Url = Field(description="Where SP is.")
    kgc_key: _PublicKey = Field(description="KGC's public key, to check what KGC signed.")
    sp_key: _PublicKey = Field(description="SP's public key, to check receipts.")
    ca: _Certificates | None = Field(description="Certificates to trust; the system's authorities if null.")
    insecure_test_key: bool = Field(description="Whether the task's key may be shorter than 2048 bits, for tests.")


def averages_again(settings: TaskSettings) -> bool:
    """Section 5.2 of the paper: late uploads are taken until a round's average is published, and all are averaged once more.

    Of `paper` alone: where servers keep what they learn, two averages that differ by one person show that person."""
    return settings.late == UNTIL_PUBLISHED
