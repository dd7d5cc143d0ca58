"""What happens to a participant, in words."""

from collections.abc import Callable, Mapping
from typing import Any

from crowdfl.settings import from_millionths
from crowdfl.text import printable_lines


def event_words(what: str, details: Mapping[str, Any]) -> str:
    """An event of a participant; what another party said in it steers no terminal."""
    return printable_lines(_SAID[what](details) if what in _SAID else _plain(what, details))


def short_state(digest: str) -> str:
    """Enough of a state's digest for two people to compare."""
    return digest[:16]


def _plain(what: str, details: Mapping[str, Any]) -> str:
    return f"{what}: " + ", ".join(f"{name} {value}" for name, value in details.items())


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
    "uploaded": lambda e: f"round {e['round']}: the upload is in{', late' if e['late'] else ''}; its receipt is kept",
    "refused": lambda e: f"round {e['round']}: the upload was not taken: {e['why']}",
    "nothing to contribute": lambda e: f"round {e['round']}: not part of it: {e['why']}",
    "rewarded": lambda e: (
        f"round {e['round']}: you earned {from_millionths(e['millionths']):.6f}"
        + ("" if e["millionths"] else "; docs/incentives.md says what rewards follow")
    ),
    "paid": lambda e: (
        f"your claim of {from_millionths(e['millionths']):.6f} is accepted; the platform pays it out"
        + "".join(
            f"; round {number} had {from_millionths(amount):.6f} less left than you earned: ask the platform why"
            for number, amount in e.get("missing", {}).items()
        )
    ),
    "waiting": lambda e: f"waiting for the platform, next try in about {e['seconds']} s: {e['why']}",
    "restored": lambda _: "the platform was restored from a backup: looking whether it still has what you sent",
    "sending again": lambda e: f"round {e['round']}: the platform has lost your upload, which is sent again",
    "upload rejected": lambda e: (
        f"round {e['round']}: both servers together left your upload out, and it earns nothing: {e['why']}"
    ),
    "reward refused": lambda e: f"round {e['round']}: no reward: {e['why']}",
    "reward missing": lambda e: f"round {e['round']}: the reward cannot be read yet; it is tried again: {e['why']}",
    "average missing": lambda e: f"round {e['round']}: the average cannot be read; it is tried again: {e['why']}",
    "claiming without": lambda e: (
        f"the claim leaves out round {', '.join(map(str, e['rounds']))}: {e['why']}. Keep your home folder: its receipts "
        "prove your part; ask the platform about it"
    ),
    "claim refused": lambda e: (
        f"the platform says that your whole claim is refused: {e['why']}. It is kept, and tried again. `crowdfl participant "
        "claim --without-missing` claims without your newest rewards; keep your home folder, and ask the platform about it"
    ),
    "not paid": lambda e: f"not paid: {e['why']}",
    "given up": lambda e: (
        f"round {e['round']} was given up or cancelled: your upload was not averaged, nobody is paid for it"
    ),
    "left": lambda _: "you have left the task; what you earned stays claimable",
}
