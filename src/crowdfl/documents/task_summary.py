"""A task in words for whoever is invited: what is recorded and trained, for whom, and on which terms."""

import datetime
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from crowdfl.documents.signed import Definition
from crowdfl.durations import span_words
from crowdfl.errors import SettingsError
from crowdfl.settings import DELTA, TaskSettings, TextsSettings, is_code, money_words, to_millionths

if TYPE_CHECKING:
    from crowdfl.learning.recipe import Recipe

_FED: Mapping[str, str] = {
    "motion": "nine numbers per channel and window",
    "spectral": "frequencies, mean and deviation of each channel and window",
    "flat": "all samples of a window",
    "windows": "all samples of a window",
}
_SENSORS = {3: "acceleration along three axes", 6: "acceleration and rotation, three axes each"}


def task_summary(definition: Definition, yours: int, charged: float = 0.0, reader: str = "") -> str:
    """`yours` is how many people an average must at least be of for this participant, `charged` epsilon of its other tasks.

    What its requester wrote stands there in the reader's language, where the task has it.
    """
    texts = definition.texts.get(definition.language_for(reader), TextsSettings())
    settings, spec = definition.settings, definition.spec
    key = settings.key if settings.profile == "shares" else f"key of {settings.key}"
    few = ": TOO FEW, you would not take part" if settings.min_participants < yours else ""
    return "\n".join(
        [
            f"Purpose: {texts.purpose or definition.purpose}",
            f"Who asks: {asker_words(definition)}",
            f"Terms: {texts.terms or definition.terms}",
            f"Readers: {texts.readers or definition.readers}",
            *_training(definition),
            f"Model: {spec.parameters:,} parameters; profile {settings.profile}, {key}",
            *plan_lines(definition),
            *reward_lines(definition),
            f"Every average is of at least {settings.min_participants} participants; you accept {yours} or more{few}",
            *([f"Recruiting: {recruiting_words(definition)}"] if definition.recruits else []),
            *_noise(settings, charged),
            *consent_lines(definition, reader),
        ]
    )


def recruiting_words(definition: Definition) -> str:
    """Of a task that SP lists, in one sentence: what that lets SP do."""
    words = (
        "the platform lets people in itself and names the other servers to them, so that it can be a reader and everybody else "
        "in the task: no number of people protects anybody against it"
    )
    if definition.settings.profile == "paper":
        return f"{words}, and in this profile it then reads every upload, which is for trials"
    return words if definition.settings.epsilon is None else f"{words}, the noise of the second server alone does"


def _noise(settings: TaskSettings, charged: float) -> list[str]:
    """What each person is promised, or not, before joining."""
    if settings.profile != "shares":
        return []
    if settings.epsilon is None:
        return ["Noise: none. Averages may show that your data is in them"]
    promise = f"epsilon {settings.epsilon:g}, delta {float(settings.delta or DELTA):g} for your updates over all rounds"
    total = f"with your other tasks epsilon {charged + settings.epsilon:.3g}"
    return [f"Noise: {promise}; {total}. Not covered: that you take part, rejections, pay"]


def consent_lines(definition: Definition, reader: str) -> list[str]:
    version = definition.consent.version
    text = definition.consent_text(definition.language_for(reader, consent=True))
    return [f"Consent, version {version}, which you sign:\n{text}"] if version else []


def text_lines(definition: Definition) -> list[str]:
    """In which languages people read what, for the requester."""
    labels, consent = definition.training.get("labels", ()), definition.consent
    lines = [f"consent        version {consent.version}, {len(consent.text):,} characters"] if consent.version else []
    for language, texts in definition.texts.items():
        parts = {"purpose": texts.purpose, "terms": texts.terms, "readers": texts.readers}
        parts |= {"consent": texts.consent} if consent.version else {}
        missing = [name for name, text in parts.items() if not text]
        missing += [f"the label {label}" for label in labels if label not in texts.words]
        lines.append(f"in {language:<12}" + (f"all but {', '.join(missing)}" if missing else "everything"))
    return lines


def asker_words(definition: Definition) -> str:
    who = definition.who
    said = [who.name, who.institution, who.contact, who.approval]
    words = "; ".join(word for word in said if word)
    key = f"the key that begins with {definition.requester.hex()[:16]}"
    return f"{words} (so they say; nothing but {key} is proven)" if words else f"whoever holds {key}"


def _training(definition: Definition) -> list[str]:
    """On the device alone; a stranger has written it, and what is wrong with it is said."""
    from crowdfl.learning.recipe import Recipe  # with all that trains: a server says other things of a task

    try:
        recipe = Recipe.of(definition.training)
    except SettingsError as wrong:
        return [f"Training: your device cannot do it: {wrong}"]
    if recipe.takes_functions:
        return ["Trained: by a function of your own, on data of your own, which stays on your device"]
    sensors = f" ({_SENSORS[recipe.channels]})" if recipe.channels in _SENSORS else ""
    learned = f"{'values' if recipe.learns_values else 'labels'}: {', '.join(recipe.labels)}"
    slow = "".join(f", {name}" for name in recipe.sensors)
    asked = [f'"{question.text}" ({" / ".join(question.choices)})' for question in recipe.questions]
    return [
        *([f"Asked after each recording, and answered on your device alone: {'; '.join(asked)}"] if asked else []),
        f"Recorded: {recipe.channels} channels{sensors}{slow}, {recipe.hertz:g} samples a second; "
        f"a window is {recipe.window_samples} samples, {recipe.window_samples / recipe.hertz:.3g} s; {learned}",
        f"Trained: {_learner(recipe)}{_loss(recipe)}, fed with {_FED[recipe.features]}; "
        f"in each round {recipe.epochs} passes over your windows, {recipe.batch} at a time; recordings stay on your device",
    ]


def _learner(recipe: "Recipe") -> str:
    if is_code(recipe.learner):
        return f"code that you install yourself ({recipe.learner})"
    if recipe.learner == "softmax":
        return "softmax regression"
    if recipe.learner == "conv":
        return "a small convolutional network"
    hidden = f"with hidden layers: {', '.join(map(str, recipe.layers))}" if recipe.layers else "without hidden layers"
    return f"a network {hidden}"


def _loss(recipe: "Recipe") -> str:
    return f", by a loss that you install yourself ({recipe.loss})" if recipe.loss and is_code(recipe.loss) else ""


def plan_lines(definition: Definition) -> list[str]:
    """The task's plan, in the order in which things happen."""
    settings, plan = definition.settings, definition.plan
    until = f"until {plan.enrol_until}" if plan.enrol_until else "until the last round"
    start = [f"no earlier than {plan.start_at}"] if plan.start_at else []
    least = plan.start_with or settings.min_participants
    sooner = ", or enrolment is over" if plan.start_with and plan.enrol_until else ""
    start.append(f"once {least} people have joined{sooner}")
    pace = (
        [f"at {plan.daily}"]
        if plan.daily
        else [f"{span_words(plan.apart)} after the last at the earliest"]
        if plan.apart
        else []
    )
    late = f", and late ones for {span_words(settings.grace)} more" if settings.grace else ""
    some = f" of {settings.per_round} people, drawn anew" if settings.per_round is not None else ""
    early = [f"with {plan.goal} uploads"] if plan.goal else []
    early += ["once everyone who is in it has sent"] if plan.closes == "everyone" else []
    closes = f"; it closes early {' or '.join(early)}" if early else ""
    again = (
        []
        if settings.per_round is None
        else [
            f"Others are drawn in place of who has not sent {span_words(settings.window / 2)} after a round's opening, and "
            f"if it is extended; who was drawn first can still send, until it has {settings.per_round} uploads"
        ]
    )
    return [
        f"Joining: {until}, at most {settings.max_participants} people",
        f"First round: {', '.join(start)}",
        f"Rounds: {settings.rounds}{some}{''.join(f', {words}' for words in pace)}; each takes uploads for "
        f"{span_words(settings.window)}{late}{closes}",
        *again,
        *([f"The last round is over by {_day(definition.rounds_until)}"] if definition.rounds_until else []),
    ]


@dataclass(frozen=True)
class Estimate:
    """What one person may earn in the whole task, in millionths.

    The least if as many take part as can, over whom a task that does not count everyone in each round spreads its rounds
    evenly; the most if the plan is just kept. Where rewards follow samples or distances these are their middle.
    """

    low: int
    high: int


def estimate(definition: Definition) -> Estimate | None:
    """None of a task without rewards. The phone has the same function: protocol/amounts.js."""
    settings, plan = definition.settings, definition.plan
    budget, rounds = to_millionths(settings.budget or 0), settings.rounds
    if not budget or settings.pay == "none":
        return None
    if settings.pay == "fixed":
        most = rounds * settings.each_round + settings.bonus_each
        return Estimate(0, most)
    planned = plan.goal or min(plan.start_with or settings.min_participants, settings.most_in_round)
    return Estimate(rounds * budget // settings.max_participants, rounds * budget // planned)


def _claims(definition: Definition) -> str:
    window = span_words(definition.claim_window)
    return f"until {_day(definition.claims_until)}" if definition.rounds_until else f"for {window} after the last round"


def _unclaimed(definition: Definition) -> str:
    """Where CSP's record says what somebody has earned, it is paid without a claim to who said where."""
    settings = definition.settings
    if settings.pay != "fixed" and _part(settings):
        return "Unclaimed then: it returns to the requester; only your device knows how much it is, and claims it"
    if definition.payer:
        return "Unclaimed then: it is paid where you have said, or returns to the requester if you have said nothing"
    return "Unclaimed then: it returns to the requester"


def _day(seconds: float) -> str:
    return f"{datetime.datetime.fromtimestamp(seconds, datetime.UTC):%Y-%m-%d %H:%M} UTC"


def reward_lines(definition: Definition) -> list[str]:
    currency, found = definition.settings.currency, estimate(definition)
    if found is None:
        return ["Rewards: none"]
    if definition.settings.pay == "fixed":
        return _fixed_lines(definition)
    budget = money_words(to_millionths(definition.settings.budget or 0), currency)
    low, high = money_words(found.low, currency), money_words(found.high, currency)
    each = definition.plan.each_unused
    unused = f"Uploads beyond {definition.plan.goal} in a round are not used; each earns {money_words(each, currency)}"
    return [
        f"Rewards: {budget} a round for all participants together; yours can be claimed {_claims(definition)}",
        _unclaimed(definition),
        f"For one person: {_part(definition.settings)}about {low} to {high} in all",
        *([unused] if each else []),
    ]


def _fixed_lines(definition: Definition) -> list[str]:
    settings, each = definition.settings, definition.plan.each_unused
    drawn = settings.per_round is not None
    rounds = "each round that you are drawn for" if drawn else f"each of {settings.rounds} rounds"
    asked = "that you were drawn for" if drawn else "that opened after you had joined"
    bonus = money_words(settings.bonus_each, settings.currency)
    unused = f"Uploads beyond {definition.plan.goal} in a round are not used; each earns {money_words(each, settings.currency)}"
    return [
        f"Rewards: {money_words(settings.each_round, settings.currency)} for {rounds} that counts your update; it can be "
        f"claimed {_claims(definition)}",
        _unclaimed(definition),
        *([f"Bonus: {bonus} once, if you were in every round {asked}"] if settings.bonus_each else []),
        *([unused] if each else []),
    ]


def _part(settings: TaskSettings) -> str:
    """Where parts are not equal. Before claims no server knows what a round paid anyone, so that no range can be named."""
    if settings.pay == "equal" or (settings.pay is None and settings.profile == "shares"):
        return ""
    if settings.pay == "samples":
        return "by how much you recorded: from nothing to a whole round's. Equal parts would be "
    rule = "by how much you recorded, and how close your model is to the average (the paper's Eq. 10)"
    return f"{rule}: from nothing to a whole round's. Equal parts would be "
