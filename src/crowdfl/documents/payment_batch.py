"""A batch of payments as it travels: from SP's operator to the payer, sealed; and what became of each, back again.

The batch holds what `crowdfl sp payouts` lists of what waits to be paid. Whoever carries it reads nothing of it, and the payer
believes none of it but what people and CSP have signed: an old batch again, or rows that somebody has made up, pay nothing.
What comes back names payments by their keys, and no destination.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from crowdfl.crypto.sealing import ReaderKey, seal_to
from crowdfl.errors import FormatError, SealBroken, SettingsError

_HEAD = b"crowdfl payment batch 1 "
_RESULTS = "crowdfl payment results 1"
_LONGEST_WHY = 200
_MOST = 1_000_000
Row = Mapping[str, Any]


def seal_batch(payer: bytes, task: str, rows: Sequence[Row]) -> bytes:
    """For the holder of this key alone."""
    head = _HEAD + task.encode() + b"\n"
    return head + seal_to(payer, json.dumps(list(rows)).encode(), head)


def open_batch(key: ReaderKey, data: bytes) -> list[dict[str, str]]:
    """The rows of a batch; `SealBroken` for what was altered, or is for another payer."""
    head, line, sealed = data.partition(b"\n")
    if not head.startswith(_HEAD) or not line:
        raise FormatError("this is no payment batch: ask the platform's operator for the file of `crowdfl sp batch`")
    try:
        found = json.loads(key.open(sealed, head + line))
    except SealBroken:
        raise SealBroken("this batch is sealed to another payer's key, or was altered: ask for it again") from None
    except ValueError:
        raise FormatError("this batch holds no list of payments") from None
    if not isinstance(found, list) or not all(isinstance(row, dict) for row in found):
        raise FormatError("this batch holds no list of payments")
    return [{str(name): str(value) for name, value in row.items()} for row in found]


@dataclass(frozen=True)
class Result:
    """What became of one payment; `why` it failed, for the person too."""

    task: str
    key: str
    state: Literal["paid", "failed"]
    why: str = field(default="")


def results_text(results: Sequence[Result]) -> str:
    return json.dumps({"kind": _RESULTS, "results": [vars(one) for one in results]}, indent=1) + "\n"


def read_results(text: str) -> list[Result]:
    """`FormatError` for anything else; nothing is done of a file that is not whole."""
    try:
        body = json.loads(text)
        found = [_result(one) for one in body["results"]]
        if body["kind"] != _RESULTS or len(found) > _MOST:
            raise ValueError
    except (ValueError, KeyError, TypeError, RecursionError):
        raise FormatError("this is no file of results as `crowdfl payer result` writes it") from None
    if len({(one.task, one.key) for one in found}) != len(found):
        raise FormatError("this file of results names a payment twice")
    return found


def _result(one: Mapping[str, Any]) -> Result:
    found = Result(one["task"], one["key"], one["state"], one.get("why", ""))
    texts = all(isinstance(value, str) for value in vars(found).values())
    if not texts or found.state not in ("paid", "failed") or len(found.why) > _LONGEST_WHY:
        raise ValueError
    return found


def checked_why(why: str) -> str:
    """Why a payment failed: a line that the person reads."""
    found = " ".join(why.split())
    if not found or len(found) > _LONGEST_WHY or not found.isprintable():
        raise SettingsError(f"say why it failed in a line of 1 to {_LONGEST_WHY} printable characters")
    return found
