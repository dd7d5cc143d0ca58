"""Campaigns as the phone's page shows them, for its tests: one of each kind."""

from typing import Any

from crowdfl.settings import PlanSettings

TASK = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
OTHER = "fedcba9876543210fedcba9876543210fedcba9876543210fedcba9876543210"
Campaign = dict[str, Any]
# A white cross on blue, 8 by 8.
LOGO = (
    "iVBORw0KGgoAAAANSUhEUgAAAAgAAAAIAQMAAAD+wSzIAAAABlBMVEUUWqD///8CVhE/AAAAGElEQVR42mNgYJBgYmBKY2JgkGBi"
    "YGAAAAWaAJ/UOxFiAAAAAElFTkSuQmCC"
)

DEFINITION: Campaign = {
    "purpose": "Tell seven shoulder exercises apart, for a study on recovery after an injury",
    "terms": "Free, and you can leave at any time.",
    "readers": "the study group of the university hospital",
    "requester": "3fa2c1d4e5f60718293a4b5c6d7e8f901a2b3c4d5e6f708192a3b4c5d6e7f809",
    "rounds_until": 2678612800,
    "claims_until": 2679822400,
    "arrays": [["w", [54, 3]], ["b", [3]]],
    "settings": {
        "profile": "shares",
        "rounds": 5,
        "window": 3600.0,
        "late": 0.0,
        "min_participants": 6,
        "max_participants": 12,
        "budget": "36.00",
        "pay": "equal",
        "currency": "EUR",
        "max_samples": 200,
    },
    "language": "en",
    "consent": {"version": "", "text": ""},
    "texts": {},
    "who": {
        "name": "Dr. Ada Okafor",
        "institution": "University hospital, department of sports medicine",
        "contact": "study@hospital.example",
        "approval": "Ethics committee of the university, 2026-114",
        "logo": LOGO,
    },
    "plan": dict(PlanSettings(every="day at 18:00 Europe/Berlin", closes="deadline")),
    "payer": "9c1e4f0a2b3d5c6e" * 4,
    "training": {
        "labels": ["walking", "sitting", "climbing stairs"],
        "channels": 6,
        "window_samples": 100,
        "hertz": 50.0,
    },
}
PAY_TO = {"asked": True, "kinds": ["email", "iban", "text"], "kind": None, "to": None, "state": "none"}
PAY_TO |= {"fingerprint": "9c1e4f0a2b3d5c6e"}
IDLE = {"kind": "idle", "round": None, "done": 0, "of": 0, "why": None}

CLAIM: Campaign = {"state": "later", "amount": "0n", "claimed": "0n", "early": True, "until": 2679822400, "why": None}


def campaign(**changes: Any) -> Campaign:
    """An invitation that was looked at, but for the changes."""
    return {
        "task": TASK,
        "phase": "invited",
        "definition": DEFINITION,
        "refusal": None,
        "closed": None,
        "expires": 2_678_612_800,
        "sp": "https://platform.example:7102",
        "kgc": "https://keys.example:7101",
        "who": None,
        "rounds": [],
        "rewards": "0n",
        "payTo": PAY_TO,
        "noise": None,
        "reminders": False,
        "consent": None,
        "withdrawn": None,
        "replaced": False,
        "claim": CLAIM,
        "receipts": [],
        "differences": [],
        "now": IDLE,
        "problem": None,
        "state": "running",
        "ended": None,
        "next": None,
        "enrolled": None,
        "recordings": 0,
        "recorded": 0,
        "contributed": None,
    } | changes


def task_round(number: int, mine: str = "arrived", **changes: Any) -> Campaign:
    """A round that was rewarded, but for the changes."""
    accuracy = {"accuracyBefore": 0.3 + 0.12 * number, "accuracyAfter": 0.42 + 0.12 * number}
    rest: Campaign = {"state": "rewarded", "reward": f"{number}250000n", "why": None, "leftOut": None}
    rest |= {"digest": None, "reason": None}
    rest["deadline"] = 2_678_612_800 + 3600 * number
    return {"number": number, "mine": mine} | accuracy | rest | changes


def definition(settings: Campaign | None = None, training: Campaign | None = None) -> Campaign:
    return DEFINITION | {
        "settings": DEFINITION["settings"] | (settings or {}),
        "training": DEFINITION["training"] | (training or {}),
    }


UNDER_WAY = [task_round(1), task_round(2), task_round(3, "training", state="open", accuracyAfter=None, reward=None)]
ARRIVED = [*UNDER_WAY[:2], task_round(3, "arrived", state="closed", accuracyAfter=None, reward=None)]
ENDED = [
    task_round(1),
    task_round(2, "late"),
    task_round(3, "refused", reward=None, why="the round was closed before the upload arrived", reason="late"),
    task_round(4, "nothing", reward=None, accuracyBefore=None, accuracyAfter=None, reason="too_little"),
    task_round(5, accuracyAfter=None),
]
RECEIPTS = [{"round": number, "text": f'crowdfl receipt S {{"round": {number}}}'} for number in (1, 2)]
JOINED = campaign(phase="joined", who="5ab0c1d2e3f405162738", rounds=UNDER_WAY, rewards="3500000n")
JOINED |= {"claim": CLAIM | {"state": "due", "amount": "3500000n"}}
JOINED |= {"enrolled": 143, "recordings": 3, "contributed": 3}
NOISE = {"epsilon": 8, "delta": None, "sigma": 57_000, "max_norm": 1.0, "decimals": 4, "weighting": "equal"}
CHARGED = {"epsilon": 8, "charged": True, "spent": 3.14159, "others": 3.5}
UNSAID = JOINED | {"contributed": None}
TRAINING = JOINED | {"now": {"kind": "training", "round": 3, "done": 7, "of": 20, "why": None}}
OVER = JOINED | {"phase": "ended", "rounds": ENDED, "rewards": "8750000n", "receipts": RECEIPTS}
GIVEN = {"kind": "iban", "to": "DE02120300000000202051", "state": "sent"}
WITHDRAWN = {"at": 2678612800, "deleted": [3], "standing": [1, 2]}
DUE = CLAIM | {"state": "due", "amount": "8750000n", "until": 2679822400}
CLAIMED = CLAIM | {"state": "claimed", "claimed": "8750000n"}
RECORDINGS: list[Campaign] = [
    {"id": "a", "label": "walking", "seconds": 61.5, "answers": {}, "at": 1763280000000, "said": False},
    {"id": "b", "label": "sitting", "seconds": 4.2, "answers": {}, "at": 1763280900000, "said": False},
    {"id": "c", "label": "climbing stairs", "seconds": 300.0, "answers": {}, "at": None, "said": False},
]
WINDOWS = {"train": 260}

STATES: dict[str, tuple[str, list[Campaign]]] = {
    "empty": ("#/campaigns", []),
    "campaigns": ("#/campaigns", [campaign(task=OTHER), TRAINING]),
    "invitation": (f"#/about/{TASK}", [campaign()]),
    "small-crowd": (f"#/about/{TASK}", [campaign(definition=definition({"min_participants": 3, "budget": None}))]),
    "refused": (f"#/about/{TASK}", [campaign(refusal="Its profile is “hardened”. This page knows “shares” only.")]),
    "record": (f"#/record/{TASK}", [UNSAID]),
    "waiting": (f"#/home/{TASK}", [JOINED | {"rounds": [], "rewards": "0n", "next": 2_678_612_800, "recordings": 0}]),
    "training": (f"#/home/{TASK}", [TRAINING]),
    "arrived": (f"#/home/{TASK}", [JOINED | {"rounds": ARRIVED}]),
    "between": (f"#/home/{TASK}", [JOINED | {"rounds": UNDER_WAY[:2], "next": 2_678_612_800, "noise": CHARGED}]),
    "ended": (f"#/home/{TASK}", [OVER | {"claim": DUE}]),
    "details": (f"#/details/{TASK}", [OVER]),
    "earnings": (f"#/earnings/{TASK}", [OVER | {"claim": DUE}]),
    "claimed": (f"#/earnings/{TASK}", [OVER | {"claim": CLAIMED}]),
    "disputed": (f"#/earnings/{TASK}", [OVER | {"claim": CLAIMED | {"disputed": [2], "short": [5]}}]),
    "pay-to": (f"#/earnings/{TASK}", [OVER | {"claim": CLAIMED, "payTo": PAY_TO | GIVEN}]),
    "leave": (f"#/leave/{TASK}", [JOINED]),
    "withdrawn": (f"#/leave/{TASK}", [JOINED | {"phase": "left", "withdrawn": WITHDRAWN}]),
    "lost": (f"#/home/{OTHER}", [JOINED]),
    "device": ("#/device", [JOINED]),
}
