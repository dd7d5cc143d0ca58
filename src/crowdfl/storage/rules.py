"""What both stores hold to, in memory and in SQL: which values they take, who may join, which upload counts."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from crowdfl.errors import AlreadyCounted, Conflict, CrowdFLError, FormatError, RoundNotOpen, TaskFull
from crowdfl.roles.ports import StoredParticipant, Upload
from crowdfl.roles.sp.rounds import RoundState

LONGEST_NAME = 64  # characters of a task, a person, an invitation, a request
_LARGEST = 2**31 - 1
_LONGEST_LEASE = 3600.0  # seconds


def require_text(value: str, longest: int | None = LONGEST_NAME) -> str:
    """Text that every database can hold: no NUL, no half of a surrogate pair, at most so many characters."""
    if longest is not None and len(value) > longest:
        raise FormatError(f"this name has {len(value)} characters; at most {longest} can be stored")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise FormatError("this text holds half a character, which cannot be stored") from None
    if "\0" in value:
        raise FormatError("this text holds a NUL character, which cannot be stored")
    return value


def require_whole(value: int) -> int:
    if not 0 <= value <= _LARGEST:
        raise FormatError(f"this number is not in 0..{_LARGEST}")
    return value


def admit(known: StoredParticipant | None, new: StoredParticipant, count: int, limit: int) -> StoredParticipant:
    """The participant as the store keeps it from now on. Idempotent; who has left may come back."""
    if known is None and count >= limit:
        raise TaskFull(f"all {limit} places of this task are taken")
    if known is not None and known.identity != new.identity:
        raise Conflict(f"{new.identity.who} is enrolled with other keys")
    return new if known is None else replace(known, left=known.left and new.left)


def judge_uploads(
    number: int, state: str | None, uploads: Sequence[Upload], own: Mapping[str, str], digests: Iterable[str]
) -> list[bool | CrowdFLError]:
    """For each upload to a round: True if it is new, False if it is in already, or why it is refused.

    `own` has the digests in this round by participant, `digests` those of the whole task, as far as `uploads` names them.
    """
    if state != RoundState.OPEN:
        return [RoundNotOpen(f"round {number} has closed: come back for the next round") for _ in uploads]
    mine, seen = dict(own), set(digests)
    return [_judge(number, upload, mine, seen) for upload in uploads]


def _judge(number: int, upload: Upload, mine: dict[str, str], seen: set[str]) -> bool | CrowdFLError:
    known = mine.get(upload.who)
    if known == upload.digest:
        return False
    if known is not None:
        return AlreadyCounted(f"{upload.who} has an upload in round {number} already, with other contents")
    if upload.digest in seen:
        return AlreadyCounted("the same bytes were uploaded to this task before: encrypt the update again")
    mine[upload.who] = upload.digest
    seen.add(upload.digest)
    return True


def is_leased_to_another(held: tuple[str, float] | None, owner: str, now: float, seconds: float) -> bool:
    """A lease that reaches much further than any was made before the clock was set back: it keeps nobody waiting."""
    return held is not None and held[0] != owner and now < held[1] <= now + max(_LONGEST_LEASE, 2 * seconds)
