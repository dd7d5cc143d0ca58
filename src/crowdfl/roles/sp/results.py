"""What a round makes: files named by their hash, which nobody finds but through the round's record.

They are written before the record that names them. Of two processes one sets the record; what the other has written goes, once
no record can name it any more.
"""

import hashlib
import json
from dataclasses import replace
from typing import Any, BinaryIO

from crowdfl.errors import NotReady
from crowdfl.protocols.profile import Audience
from crowdfl.reasons import Reason
from crowdfl.roles.ports import Blobs
from crowdfl.roles.records import Round, RoundState

KINDS = ("average", "model", "rewards", "rejected", "left_over", "word", "held")  # folders, and fields of the record


def publication_kind(audience: Audience) -> str:
    """The requester's own is apart from what participants are served, of one round too."""
    return "average" if Audience.PARTICIPANTS in audience else "model"


def has_publication(round_: Round, audience: Audience) -> bool:
    return getattr(round_, publication_kind(audience)) is not None


def result_folder(task: str, number: int, kind: str) -> str:
    return f"{task}/rounds/{number}/{kind}"


def result_name(task: str, number: int, kind: str, digest: str) -> str:
    return f"{result_folder(task, number, kind)}/{digest}"


def keep_results(blobs: Blobs, task: str, round_: Round, **made: bytes | None) -> Round:
    """Durably; the record that is to name them."""
    kept = {kind: (hashlib.sha256(data).hexdigest(), data) for kind, data in made.items() if data is not None}
    blobs.put_all({result_name(task, round_.number, kind, digest): data for kind, (digest, data) in kept.items()})
    named: dict[str, Any] = {kind: digest for kind, (digest, _) in kept.items()}
    return replace(round_, **named)


def open_result(blobs: Blobs, task: str, round_: Round, kind: str) -> BinaryIO:
    digest: str | None = getattr(round_, kind)
    if digest is None:
        raise NotReady(f"round {round_.number} has made nothing of this kind: {kind}")
    return blobs.open(result_name(task, round_.number, kind, digest))


def read_result(blobs: Blobs, task: str, round_: Round, kind: str) -> bytes:
    with open_result(blobs, task, round_, kind) as file:
        return file.read()


def rejected_in(blobs: Blobs, task: str, round_: Round) -> dict[str, Reason]:
    """Whose uploads both servers left out of a round, and why."""
    if round_.rejected is None:
        return {}
    kept = json.loads(read_result(blobs, task, round_, "rejected"))
    return {who: Reason(code) for who, code in kept.items()}


def is_surplus(round_: Round, kind: str, digest: str) -> bool:
    """Whether the record neither names this file nor ever will: each kind is named once, a model or a word after its round."""
    named = getattr(round_, kind)
    after = {RoundState.ABORTED: "word", RoundState.REWARDED: "model"}
    final = round_.is_over and kind != after[round_.state]
    return bool(named != digest and (final or named is not None))


def drop_surplus(blobs: Blobs, task: str, lost: Round, found: Round) -> None:
    """What a record would have named that was not set: another process was first."""
    for kind in KINDS:
        digest = getattr(lost, kind)
        if digest is not None and is_surplus(found, kind, digest):
            blobs.delete(result_name(task, lost.number, kind, digest))
