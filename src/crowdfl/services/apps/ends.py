"""SP's word that a task is over, as its peers take it."""

from collections.abc import Callable, Sequence
from typing import Annotated, Any

from fastapi import Depends, FastAPI
from fastapi.params import Depends as DependsOn

from crowdfl.roles.retention import PeerRetention
from crowdfl.services.http.bodies import Form, TaskId, json_body, takes_json

_LONGEST_BODY = 8192


class TaskEndForm(Form):
    """SP's signed word that a task is over."""

    document: str


def add_end_route(
    app: FastAPI,
    retention: PeerRetention[Any],
    for_sp: Sequence[DependsOn],
    after: Callable[[str], None] = lambda _task: None,
) -> None:
    """`for_sp` lets SP alone in; `after` is called with each task that has ended."""
    body = Annotated[TaskEndForm, Depends(json_body(TaskEndForm, _LONGEST_BODY))]

    @app.post("/v1/tasks/{task}/end", status_code=204, dependencies=list(for_sp), openapi_extra=takes_json(TaskEndForm))
    def end(task: TaskId, body: body) -> None:
        """The task is over: what it needed is erased when this is answered. Final, and safe to repeat."""
        retention.end(task, body.document)
        after(task)
