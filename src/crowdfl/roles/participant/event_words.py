"""What happens to a participant, in words."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from crowdfl.reasons import Reason
from crowdfl.roles.participant.evidence import CspWord, SpWord
from crowdfl.settings import money_words
from crowdfl.text import printable_lines


def event_words(what: str, details: Mapping[str, Any]) -> str:
    """An event of a participant; what another party said in it steers no terminal."""
    plain = ", ".join(f"{name} {value}" for name, value in details.items())
    return printable_lines(_SAID[what](details) if what in _SAID else f"{what}: {plain}")


def short_state(digest: str) -> str:
    """Enough of a state's digest for two people to compare."""
    return digest[:16]


def _rounds_words(numbers: Sequence[int]) -> str:
    return f"your upload of round {', '.join(map(str, numbers))}" if numbers else "no upload"


def _scores(event: Mapping[str, Any]) -> str:
    """How the average does on what this person holds out; and its state's digest, the same on every device."""
    scores = [f"{name} {value:.4g}" for name, value in event.items() if isinstance(value, float) and name != "windows"]
    on = f" on {event['windows']:.0f} windows of yours" if scores and "windows" in event else ""
    state = f"; its state is {short_state(event['state'])}" if "state" in event else ""
    return (": " + ", ".join(scores) + on if scores else "") + state


_SAID: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "joined": lambda e: f"joined as {e['who']}; a round begins when enough people have joined",
    "trained": lambda e: (
        f"round {e['round']}: trained on {e['samples']} samples; {e['clipped']} weights were clipped"
        + (f"; the update was scaled by {e['scaled']} to the task's largest norm" if "scaled" in e else "")
    ),
    "read": lambda e: f"round {e['round']}: the average is read{_scores(e)}",
    "noise": lambda e: (
        f"round {e['round']}: noise of about {e['length']:.3g} is in the average, which has moved by {e['change']:.3g}"
    ),
    "uploaded": lambda e: f"round {e['round']}: the upload is in{', late' if e['late'] else ''}; its receipt is kept",
    "unused": lambda e: (
        f"round {e['round']}: enough others were there first, so that the upload is not used; you earned "
        f"{money_words(e['millionths'], e['currency'])}"
    ),
    "refused": lambda e: f"round {e['round']}: the upload was not taken: {e['why']}",
    "nothing to contribute": lambda e: f"round {e['round']}: not part of it: {e['why']}",
    "not drawn": lambda e: (
        f"round {e['round']}: others were drawn; if some of them stay away you may be drawn later, else for another round"
    ),
    "rewarded": lambda e: (
        f"round {e['round']}: you earned {money_words(e['millionths'], e['currency'])}"
        + ("" if e["millionths"] else "; docs/incentives.md says what rewards follow")
    ),
    "claimed": lambda e: (
        f"you have claimed, and the platform is to pay, {money_words(e['millionths'], e['currency'])} so far"
        + "".join(
            f"; round {number}: {money_words(amount, e['currency'])} less than you earned: ask the platform why"
            for number, amount in e.get("missing", {}).items()
        )
        + "".join(
            f"; round {number}: {money_words(amount, e['currency'])} for an upload that was not used is disputed: the "
            "platform's operator decides. Keep your home folder, with its receipt"
            for number, amount in e.get("disputed", {}).items()
        )
    ),
    "pay to": lambda _: "where you are to be paid is with the platform, sealed to whoever pays",
    "waiting": lambda e: f"waiting for the platform, next try in about {e['seconds']} s: {e['why']}",
    "restored": lambda _: "the platform was restored from a backup: looking whether it still has what you sent",
    "sending again": lambda e: f"round {e['round']}: the platform has lost your upload, which is sent again",
    "upload rejected": lambda e: (
        f"round {e['round']}: both servers together left your upload out, and it earns nothing: {Reason(e['why']).words}"
    ),
    "check data": lambda _: (
        "two of your uploads were not in line with the task: your recordings or labels may be mixed up. Check them"
    ),
    "reward refused": lambda e: f"round {e['round']}: no reward: {e['why']}",
    "reward missing": lambda e: f"round {e['round']}: the reward cannot be read yet; it is tried again: {e['why']}",
    "average missing": lambda e: f"round {e['round']}: the average cannot be read; it is tried again: {e['why']}",
    "record missing": lambda e: f"round {e['round']}: its signed record cannot be read; it is tried again: {e['why']}",
    "claiming without": lambda e: (
        f"the claim is made without round {', '.join(map(str, e['rounds']))}: {e['why']}. Keep your home folder: its receipts "
        "prove your part, and `crowdfl participant claim` claims it later; ask the platform about it"
    ),
    "claim refused": lambda e: (
        f"the platform says that your claim is refused: {e['why']}. It is kept, and tried again. Keep your home folder, and "
        "ask the platform about it"
    ),
    "not paid": lambda e: f"not paid: {e['why']}",
    "words differ": lambda e: (
        f"round {e['round']}: the platform said that {SpWord(e['said']).words}; what the second server has signed says: "
        f"{CspWord(e['signed']).words}. That counts. Both are kept: `crowdfl participant evidence` shows them, and whom to "
        "send them to"
    ),
    "given up": lambda e: (
        f"round {e['round']} was given up or cancelled: your upload was not averaged, nobody is paid for it"
    ),
    "stopped": lambda e: (
        f"your device takes no further part in this task: {e['why']}. One of the servers may be trying to learn about you, "
        "or it fails: ask the platform. What you earned stays claimable"
    ),
    "left": lambda _: "you have left the task; what you earned stays claimable",
    "agreed": lambda e: (
        f"you have agreed to version {e['version']} of the consent text; your copy, with the proof, is {e['copy']} in your "
        "home folder"
    ),
    "replaced": lambda e: f"your device takes no further part in this task: {e['why']}",
    "withdrawn": lambda e: (
        f"you have withdrawn from the task. Deleted: {_rounds_words(e['deleted'])}. Not to be undone: "
        f"{_rounds_words(e['standing'])}, which the servers average or have averaged, and payments. The platform keeps "
        "your name in the task, your keys, your consent and this withdrawal, as evidence; what you earned stays claimable"
    ),
}
