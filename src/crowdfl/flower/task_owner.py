"""The owner of a model: prepares a task before the run, and opens the model after it. Neither needs Flower's servers.

The server's process gets the papers and no key of the owner's: it can run the task, and read nothing of it.
"""

import datetime
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from crowdfl.documents.signed import Definition
from crowdfl.effects import require_effect
from crowdfl.errors import NotReady, SettingsError
from crowdfl.flower.admission import Agreed, kept_digest, plain_settings
from crowdfl.flower.client_state import NodeInvitation
from crowdfl.learning.models.shape import ModelShape
from crowdfl.protocols.profile import Tools
from crowdfl.protocols.registry import profile_named
from crowdfl.roles.ports import Blobs, ManualClock
from crowdfl.roles.requester import Requester
from crowdfl.settings import PlanSettings, TaskSettings
from crowdfl.storage.atomic import write_private
from crowdfl.storage.blobs import FileBlobs

if TYPE_CHECKING:
    from flwr.app import ArrayRecord

_PAPERS, _INITIAL, _ROUNDS = "task.json", "initial.safetensors", "rounds.json"
_JOINING = 90 * 86400
_HOUR = 3600  # to claim in, as nothing is paid
_FEWEST = 3
DEFAULTS: Mapping[str, Any] = {"profile": "shares", "max_samples": 10_000, "max_norm": 10.0, "min_participants": 3}


@dataclass(frozen=True)
class PreparedTask:
    """What a run needs of a task. Nothing in it is secret but the invitations, if it has any."""

    definition: str
    appointment: str
    initial: bytes = field(repr=False)
    invitations: tuple[str, ...] = field(default=(), repr=False)

    def write(self, folder: Path) -> None:
        papers = {"definition": self.definition, "appointment": self.appointment, "invitations": self.invitations}
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_private(folder / _PAPERS, json.dumps(papers).encode())
        write_private(folder / _INITIAL, self.initial)

    @classmethod
    def read(cls, folder: Path) -> "PreparedTask":
        try:
            found = json.loads((folder / _PAPERS).read_bytes())
            papers = str(found["definition"]), str(found["appointment"])
            return cls(*papers, (folder / _INITIAL).read_bytes(), tuple(map(str, found["invitations"])))
        except (OSError, ValueError, KeyError, TypeError):
            raise SettingsError(f"{folder} holds no task, as `crowdfl.flower.prepare` writes it") from None


class _Posted:
    """In the place of SP, while the requester makes its task: what would be posted is kept."""

    task: PreparedTask | None = None

    def create_task(self, definition: str, appointment: str, initial: bytes) -> str:
        self.task = PreparedTask(definition, appointment, initial)
        return Definition.open(definition).task

    def status(self, task: str) -> dict[str, Any]:
        """Nothing has begun or ended."""
        del task
        return {}

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        raise NotReady(f"there is no SP to ask for {name}: the task is only being prepared")


def task_settings(rounds: int, settings: Mapping[str, Any]) -> TaskSettings:
    """One round more than are run: of a task's last one, participants are not given the average to evaluate."""
    for name in ("profile", "rounds", "late", "per_round"):
        if name in settings:
            raise SettingsError(f"`{name}` is not yours to set here: a run with Flower decides it")
    found = TaskSettings.of(**{**DEFAULTS, **settings, "rounds": rounds + 1})
    require_effect(found, settings)
    return found


def make_definition(
    settings: TaskSettings, shape: ModelShape, training: Mapping[str, Any], texts: Mapping[str, str]
) -> Definition:
    words: dict[str, Any] = {
        "purpose": "A model that is trained with Flower",
        "terms": "Data stays at the client. Its update leaves in two shares that show nothing alone.",
        "readers": "Every client reads the averages, and so does the owner of the task.",
    }
    return Definition(**{**words, **texts}, shape=shape, settings=settings, claims_until=_HOUR, training=training)


def create(
    requester: Requester, definition: Definition, initial: Sequence[Any], invitations: int
) -> tuple[str, PreparedTask]:
    """Have KGC deal the task's keys. The requester must reach KGC; nobody else is told yet."""
    posted = _Posted()
    # A run comes when its operator likes, but a server that dies before it has ended the task must not leave it open for long.
    until = datetime.datetime.fromtimestamp(math.ceil(requester.clock.now() + _JOINING), datetime.UTC).isoformat()
    definition = replace(definition, plan=PlanSettings(enrol_until=until))
    owner = replace(requester, sp=posted)
    profile_named(definition.settings.profile).check(definition.settings, definition.spec.parameters)
    task = owner.create(definition, initial)
    if posted.task is None:
        raise NotReady("the task was not posted")
    return task, replace(posted.task, invitations=tuple(owner.invite(task, invitations, _JOINING)))


def prepare(  # noqa: PLR0913 -- one call says all of a task; each has a name
    requester: str | Path,
    initial_arrays: "ArrayRecord",
    num_rounds: int,
    folder: str | Path,
    *,
    nodes: int,
    train_config: Mapping[str, Any] | None = None,
    run_config: Mapping[str, Any] | None = None,
    query_config: Mapping[str, Any] | None = None,
    weighted_by_key: str = "num-examples",
    arrayrecord_key: str = "arrays",
    texts: Mapping[str, str] | None = None,
    **settings: Any,  # noqa: ANN401 -- TaskSettings checks each by name
) -> str:
    """Prepare a task before the run, at the owner of the model. Returns the task's id.

    `folder`/run goes to whoever runs the server; one file of `folder`/nodes to each node's operator, by another way.

    Args:
        requester: the owner's settings file, as `crowdfl init` writes it.
        initial_arrays: what the strategy starts from, with the same values.
        num_rounds: the most rounds that the run may have.
        folder: a new folder for the task.
        nodes: how many invitations to write.
        train_config: what `strategy.start` gets as such, and what a strategy adds (FedProx: `proximal-mu`). With
            `run_config` it is all that a client's app sees: a server that could choose it for each client could have all
            but one stand still, and read that one's update.
        run_config: whatever the client's functions read of `context.run_config`.
        query_config: what the app's default `query` function may be asked with; without it no query is answered.
        weighted_by_key: the strategy's, and so is `arrayrecord_key`.
        texts: `purpose`, `terms` and `readers`, for people who read them.
        settings: as `CrowdFLStrategy` takes them.
    """
    from crowdfl.flower.wire import Template
    from crowdfl.services.client.opening import RequesterFile, open_requester

    own = RequesterFile.read(Path(requester))
    template = Template.of(initial_arrays)
    place = Path(folder)
    configs = plain_settings("train_config", train_config), plain_settings("run_config", run_config)
    query = None if query_config is None else plain_settings("query_config", query_config)
    agreed = Agreed(weighted_by_key, arrayrecord_key, kept_digest(template.kept(initial_arrays)), *configs, query)
    template = replace(template, agreed=agreed)
    limits = {"max_participants": max(nodes, _FEWEST), **settings}
    shape, training = template.shape(initial_arrays), template.training()
    definition = make_definition(task_settings(num_rounds, limits), shape, training, texts or {})
    with open_requester(own) as opened:
        task, prepared = create(opened, definition, template.initial(initial_arrays), nodes)
    replace(prepared, invitations=()).write(place / "run")
    ca = own.settings.ca.read_text() if own.settings.ca else None
    (place / "nodes").mkdir(mode=0o700)
    for number, invitation in enumerate(prepared.invitations):
        one = NodeInvitation(task, invitation, own.settings.kgc, own.settings.kgc_key.hex(), ca)
        write_private(place / "nodes" / f"node-{number}.json", one.text().encode())
    return task


def open_model(requester: str | Path, published: str | Path) -> "ArrayRecord":
    """After the run, at the owner's: the last average. `published` is the folder that the strategy has written.

    `requester`: the settings file that the task was prepared with; of a trial, `home`/requester.
    """
    from flwr.app import ArrayRecord

    from crowdfl.flower.wire import Template

    results = PublishedRounds.read(Path(published))
    reader = results.reader(owners_blobs(Path(requester)))
    template = Template.from_training(reader.definition(results.task).training)
    return template.record(reader.model(results.task), ArrayRecord())


def owners_blobs(place: Path) -> FileBlobs:
    """What a requester keeps: beside its settings file, or in this folder."""
    folder = place.resolve().parent / "state" if place.is_file() else place
    if not folder.is_dir():
        raise SettingsError(f"there is no folder of a requester at {place}")
    return FileBlobs(folder)


@dataclass(frozen=True)
class PublishedRounds:
    """A run's sealed averages in a folder: SP as the owner of the model reaches it after the run."""

    task: str
    rounds: Sequence[tuple[int, str]]
    publications: Mapping[int, bytes] = field(repr=False)

    def write(self, folder: Path) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for number, publication in self.publications.items():
            write_private(folder / f"{number}.publication", publication, overwrite=True)
        text = json.dumps({"task": self.task, "rounds": self.rounds})
        write_private(folder / _ROUNDS, text.encode(), overwrite=True)

    @classmethod
    def read(cls, folder: Path) -> "PublishedRounds":
        try:
            found = json.loads((folder / _ROUNDS).read_bytes())
            rounds = [(int(number), str(state)) for number, state in found["rounds"]]
            done = [number for number, state in rounds if state == "rewarded"]
            publications = {number: (folder / f"{number}.publication").read_bytes() for number in done}
            return cls(str(found["task"]), rounds, publications)
        except (OSError, ValueError, KeyError, TypeError):
            raise SettingsError(f"{folder} holds no published rounds, as CrowdFLStrategy writes them") from None

    def reader(self, blobs: Blobs) -> Requester:
        """The owner of the task, who opens these; KGC is not asked for anything."""
        nobody, here = cast(Any, None), cast(Any, self)
        return Requester(blobs, ManualClock(), nobody, here, b"", Tools.unwatched())

    def status(self, task: str) -> dict[str, Any]:
        del task
        return {"state": "finished", "rounds": [{"number": n, "state": state} for n, state in self.rounds]}

    def final(self, task: str, number: int) -> bytes:
        del task
        return self.publications[number]
