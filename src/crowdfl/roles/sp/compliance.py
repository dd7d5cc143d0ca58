"""Who has sent in which round, for the requester of a study: by the names in the task, never what was sent."""

from collections.abc import Collection, Mapping
from typing import Any

from crowdfl.errors import QuotaExceeded
from crowdfl.roles.ports import SpStore

_MOST = 20_000  # people of one answer


def compliance(store: SpStore, task: str) -> dict[str, Any]:
    """Rounds with the moment each opened; people in the order they joined, where each stands, and the rounds it has sent in.

    `drawn`: the rounds that it was drawn for, of a task that draws people.
    """
    people, rounds = store.participants(task), store.rounds(task)
    if len(people) > _MOST:
        raise QuotaExceeded(
            f"{len(people)} people have joined, and at most {_MOST} are listed: ask the platform's operator"
        )
    sent = {one.number: {upload.who for upload in store.uploads(task, one.number)} for one in rounds}
    drawn = {one.number: store.drawn(task, one.number) for one in rounds}
    rows = [
        {"who": who, "state": state, "sent": _of(who, sent), "drawn": _of(who, drawn)}
        for who, state in ((one.identity.who, one.state) for one in people)
    ]
    return {"rounds": [{"number": one.number, "opened": one.opened_at} for one in rounds], "people": rows}


def _of(who: str, by_round: Mapping[int, Collection[str]]) -> list[int]:
    return [number for number, people in by_round.items() if who in people]
