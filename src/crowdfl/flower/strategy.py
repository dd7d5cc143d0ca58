"""The server's half for Flower: a strategy around a FedAvg, which still decides who takes part and how metrics are averaged.

`CrowdFLStrategy(FedAvg(...))` sends what FedAvg would send, sealed, and averages uploads that nobody can read.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from logging import INFO, WARNING
from pathlib import Path
from typing import Any, NoReturn

from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.common.logger import log
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg, FedProx, Result, Strategy

from crowdfl.documents.signed import Definition
from crowdfl.errors import CrowdFLError, NotReady, SettingsError
from crowdfl.flower.admission import RECORD, Agreed, kept_digest
from crowdfl.flower.federation import (
    LOCAL,
    Federation,
    LocalServers,
    RoundOutcome,
    ServiceServers,
    in_words,
    open_servers,
)
from crowdfl.flower.task_owner import PreparedTask, create, make_definition, owners_blobs, task_settings
from crowdfl.flower.wire import ClientAnswer, Template
from crowdfl.learning.models.shape import Weights
from crowdfl.privacy import PrivacyLedger, RoundPrivacy
from crowdfl.roles.ports import Blobs
from crowdfl.schema import require_known
from crowdfl.settings import TaskSettings

_SPARE = 2  # participants for each node that is there at the start: others may come
_FEWEST = 3
_LONGEST = 300  # characters of a reason


class SealedArrays(ArrayRecord):
    """What `Result.arrays` is when nobody asked for the average to be opened on the server: empty, and it says so."""

    def _sealed(self, *_args: object, **_options: object) -> NoReturn:
        raise NotReady(
            "the averages are sealed, and this server cannot read them: the owner of the model opens the last one with "
            "`crowdfl.flower.open_model`; or give CrowdFLStrategy reveal=True"
        )

    to_torch_state_dict = to_numpy_ndarrays = _sealed


class CrowdFLStrategy(Strategy):
    """Around a FedAvg, which still decides who takes part and how metrics are averaged.

    `left_out` has, by round, each node that was left out and why; `privacy`, with `epsilon`, what was spent of whose privacy.

    Args:
        strategy: FedAvg, or one that averages as it does, such as FedProx. It samples nodes (`fraction_train`,
            `fraction_evaluate`) and averages metrics (`train_metrics_aggr_fn`, `evaluate_metrics_aggr_fn`) as ever.
        csp: "local", for a trial: KGC and CSP in this process, which then hides nothing from it. Else SP's settings file.
        task: the folder `run` of a task that its owner has prepared. Without it the task is made here, by this process.
        reveal: averages are opened here, for `evaluate_fn` and `Result.arrays`. Single updates stay hidden.
        reference: trains on data of the owner's own, `reference(arrays, server_round)`, and returns the arrays: nodes whose
            updates go against it are left out (docs/poisoning.md). Every client counts once then.
        requester: the owner's settings file, for `reveal` or `reference` with `task`.
        home: where the sealed averages are written, for `open_model`; of a trial the owner's keys too.
        settings: settings of the task (docs/settings.md), except `profile`, `rounds` and `late`. `max_norm` is the largest
            length of an update, and a client scales a longer one down: about the largest that you expect. With
            `weighting="equal"` every client counts once; else one with more than `max_samples` is left out. With fewer uploads
            than `min_participants` a round has no average; if the first round would ask fewer nodes, the run ends before it.
            `max_participants` is twice the nodes that are there at the start. `budget` pays rewards.
    """

    def __init__(
        self,
        strategy: FedAvg,
        *,
        csp: str | Path = LOCAL,
        task: str | Path | None = None,
        reveal: bool = False,
        reference: Callable[[ArrayRecord, int], ArrayRecord] | None = None,
        requester: str | Path | None = None,
        home: str | Path | None = None,
        **settings: Any,  # noqa: ANN401 -- TaskSettings checks each by name
    ) -> None:
        _require_fedavg(strategy)
        self.inner = strategy
        self.csp = csp
        self.reveal = reveal
        self.settings = settings
        self.reference = reference
        self.task = _path(task)
        self.requester = _path(requester)
        self.home = _path(home)
        self.left_out: dict[int, dict[int, str]] = {}  # by round of Flower's: nodes, and why
        self.outcomes: dict[int, RoundOutcome] = {}
        self.federation: Federation | None = None
        self._template, self._kept = Template((), {}), ArrayRecord()
        self._asked: list[int] = []
        self._refused: dict[int, str] = {}
        self._timeout = 3600.0
        self._require_sense()

    def _require_sense(self) -> None:
        require_known(TaskSettings, self.settings)  # first: `reveal` may be what was mistyped
        if self.reference is not None and not callable(self.reference):
            raise SettingsError("`reference` is a function here, which trains on data of the owner's own")
        if self.csp != LOCAL and self.task is None:
            raise SettingsError("with CSP as a service, name the task that its owner has prepared: task=...")
        if self.task is not None and self.csp == LOCAL:
            raise SettingsError("a prepared task has its KGC and CSP elsewhere: csp= names SP's settings file")
        if self.task is not None and self.settings:
            raise SettingsError(f"a prepared task has its settings: leave {', '.join(self.settings)} out here")
        if self.task is not None and (self.reveal or self.reference) and self.requester is None:
            what = "reveal=True" if self.reveal else "`reference`"
            raise SettingsError(f"{what} needs the keys of the task's owner here: requester=...")
        if not self.reveal and self.home is None:
            raise SettingsError(
                "nobody could read the model: say home=... for the sealed averages, or reveal=True to open them here"
            )

    def summary(self) -> None:
        self.inner.summary()
        where = "in this process (a trial)" if self.csp == LOCAL else "a service"
        log(
            INFO,
            "\t└──> CrowdFL: profile shares, CSP %s, averages %s",
            where,
            "opened here" if self.reveal else "sealed",
        )

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None = None,
    ) -> Result:
        if evaluate_fn is not None and not self.reveal:
            raise SettingsError("evaluate_fn needs the averages in the clear: leave it out, or give reveal=True")
        if self.federation is not None:
            raise SettingsError("a CrowdFLStrategy serves one run: make another one")
        self._timeout, self._template = timeout, Template.of(initial_arrays)
        self._kept = self._template.kept(initial_arrays)
        agreed = Agreed(self.inner.weighted_by_key, self.inner.arrayrecord_key, kept_digest(self._kept))
        self._template = replace(self._template, agreed=agreed)
        self.federation = self._federation(grid, initial_arrays, num_rounds)
        options = (num_rounds, timeout, train_config, evaluate_config, evaluate_fn)
        try:
            result = super().start(grid, initial_arrays, *options)
            self._hand_out_rewards(grid)
        finally:  # what was averaged before a failure is the owner's too
            try:
                for line in self.privacy.lines() if self.privacy else ():
                    log(INFO, "CrowdFL: %s", line)
                if self.home is not None:
                    log(INFO, "CrowdFL: the sealed averages are in %s", self.federation.write(self.home))
            finally:
                self.federation.end()
        if not self.reveal:
            result.arrays = SealedArrays()
        elif not any(outcome.averaged for outcome in self.outcomes.values()):
            log(WARNING, "CrowdFL: no round has an average: the model is that of `initial_arrays`")
            result.arrays = initial_arrays
        return result

    def _hand_out_rewards(self, grid: Grid) -> None:
        """Those of the last round: an evaluation has not reached everyone."""
        run, here = self._run, set(grid.get_node_ids())
        unread = [node for node, one in run.clients.items() if one.enrolled and one.last < run.next_number - 1]
        self._asked, self._refused = [node for node in unread if node in here], {}
        if not run.budget or not self._asked:
            return
        told = {node: RecordDict({RECORD: ConfigRecord(run.reminder(node).values())}) for node in self._asked}
        messages = [Message(told[node], node, MessageType.TRAIN) for node in self._asked]
        for node, why in self._usable(grid.send_and_receive(messages, timeout=self._timeout))[1].items():
            log(WARNING, "CrowdFL: node %s did not read its last reward: %s", node, why)

    # The task.

    def _federation(self, grid: Grid, arrays: ArrayRecord, rounds: int) -> Federation:
        if self.home is not None and (self.home / "published").exists():
            raise SettingsError(
                f"{self.home} holds the results of another run, which cannot go on: name another folder"
            )
        servers = open_servers(self.csp, self.home)
        if isinstance(servers, LocalServers):
            prepared = self._made_here(servers, grid, arrays, rounds)
        else:
            prepared = PreparedTask.read(self.task or Path())
        definition = Definition.open(prepared.definition)
        self._require_fit(definition, grid, rounds)
        owner = self._owner(servers) if self.reveal or self.reference else None
        return Federation(servers, prepared, owner, self._referred if self.reference else None)

    def _require_fit(self, definition: Definition, grid: Grid, rounds: int) -> None:
        """Before the task is used up."""
        settings = definition.settings
        if settings.reference != (self.reference is not None):
            raise SettingsError("a task with `reference = true`, and no other, needs reference=..., which trains one")
        if rounds > settings.rounds - 1:
            raise SettingsError(
                f"{rounds} rounds are asked for, and the task has {settings.rounds - 1}: prepare one with more"
            )
        self._require_same_model(definition)
        self._foresee(grid, settings.min_participants)

    def _foresee(self, grid: Grid, fewest: int) -> None:
        """What the first round will ask, where nodes are sampled as Flower does it."""
        inner = self.inner
        if type(inner).configure_train in (FedAvg.configure_train, FedProx.configure_train):
            nodes = int(len(list(grid.get_node_ids())) * inner.fraction_train)
            _require_enough(max(nodes, inner.min_train_nodes), fewest)

    def _made_here(self, servers: LocalServers, grid: Grid, arrays: ArrayRecord, rounds: int) -> PreparedTask:
        """For a trial. Everyone who is there may take part, and as many again who come later."""
        nodes = max(len(list(grid.get_node_ids())), self.inner.min_available_nodes, _FEWEST) * _SPARE
        referred = {"reference": True, "weighting": "equal"} if self.reference else {}
        settings = task_settings(rounds, {"max_participants": nodes, **referred, **self.settings})
        template = self._template
        definition = make_definition(settings, template.shape(arrays), template.training(), {})
        return create(servers.requester, definition, template.initial(arrays), settings.max_participants)[1]

    def _referred(self, weights: Weights, _training: Mapping[str, Any], number: int) -> tuple[Weights, int]:
        if self.reference is None:
            raise NotReady("this strategy has no reference to train")
        trained = self.reference(self._template.record(weights, self._kept), number)
        return self._template.weights(trained), 1

    def _owner(self, servers: LocalServers | ServiceServers) -> Blobs | None:
        """The owner's keys, where it has lent them to this process; of a trial they are here anyway."""
        if isinstance(servers, LocalServers):
            return servers.requester.blobs
        return None if self.requester is None else owners_blobs(self.requester)

    def _require_same_model(self, definition: Definition) -> None:
        found, own = Template.from_training(definition.training), self._template
        if (found.names, found.types, found.agreed.kept) != (own.names, own.types, own.agreed.kept):
            raise SettingsError("the prepared task is of another model than `initial_arrays`: prepare one with these")
        for name in ("weight_key", "arrays_key"):
            if getattr(found.agreed, name) != getattr(own.agreed, name):
                key = {"weight_key": "weighted_by_key", "arrays_key": "arrayrecord_key"}[name]
                raise SettingsError(f"the strategy's {key} is another than the task's: give the same to `prepare`")
        self._template = found

    @property
    def _run(self) -> Federation:
        if self.federation is None:
            raise NotReady("this strategy runs as a whole: call its `start`")
        return self.federation

    # Messages out.

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        messages = list(self.inner.configure_train(server_round, self._kept, config, grid))
        if not self.outcomes:
            _require_enough(len(messages), self._run.settings.min_participants)
        return self._sealed(messages, grid, training=True)

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        messages = self.inner.configure_evaluate(server_round, self._kept, config, grid)
        return self._sealed(messages, grid, training=False)

    def _sealed(self, messages: Iterable[Message], grid: Grid, *, training: bool) -> list[Message]:
        """The same messages, with what CrowdFL's mod makes the model from. Newcomers are introduced to KGC first."""
        out = list(messages)
        self._asked = [message.metadata.dst_node_id for message in out]
        self._refused = self._introduce(grid)
        kept = []
        for message in out:
            node = message.metadata.dst_node_id
            if node not in self._refused:
                config = message.content.config_records[self.inner.configrecord_key]
                self._template.agreed.require_config(config, training=training)
                told = self._run.instruction(node, training=training)
                content = RecordDict({**message.content, RECORD: ConfigRecord(told.values())})
                message.content = content
                kept.append(message)
        return kept

    def _introduce(self, grid: Grid) -> dict[int, str]:
        """Nodes that cannot take part, and why."""
        new = [node for node in self._asked if self._run.is_new(node)]
        if not new:
            return {}
        log(INFO, "CrowdFL: %s nodes are new and enrol", len(new))
        papers = {node: ConfigRecord(self._run.introduction(node).values()) for node in new}
        messages = [Message(RecordDict({RECORD: papers[node]}), node, MessageType.TRAIN) for node in new]
        refused = dict.fromkeys(new, "no reply to the papers of the task")
        for reply in grid.send_and_receive(messages, timeout=self._timeout):
            node = reply.metadata.src_node_id
            if node in refused:
                refused |= self._judged(reply, self._run.take_request)
                if refused[node] == "":
                    del refused[node]
        return refused

    def _judged(self, reply: Message, take: Callable[[int, ClientAnswer], object]) -> dict[int, str]:
        """The node and why its reply cannot be used; an empty reason if it can."""
        node = reply.metadata.src_node_id
        if reply.has_error():
            return {node: f"the client failed: {reply.error.reason}"[:_LONGEST]}
        found = reply.content.config_records.get(RECORD)
        if found is None:
            return {node: "the client's app lacks CrowdFL's mod: what it sent is not used"}
        try:
            answer = ClientAnswer.of(found)
            if answer.lost:
                self._run.forget(node)
                return {node: "the client has lost its keys: it enrols again in the next round"}
            if answer.refused:
                self._run.refuses(node)
                return {node: f"the client refused: {answer.refused}"[:_LONGEST]}
            take(node, answer)
        except CrowdFLError as wrong:
            return {node: in_words(wrong)[:_LONGEST]}
        return {node: ""}

    # Replies.

    def _usable(self, replies: Iterable[Message]) -> tuple[dict[int, Message], dict[int, str]]:
        """By node: replies that CrowdFL can use, and why the others cannot be."""
        left_out = {node: self._refused.get(node, "no reply in time") for node in self._asked}
        usable = {}
        for reply in replies:
            node = reply.metadata.src_node_id
            if node not in left_out or node in usable:
                continue
            judged = self._judged(reply, self._run.note)
            if judged[node]:
                left_out |= judged
            else:
                usable[node] = reply
                del left_out[node]
        return usable, left_out

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        usable, left_out = self._usable(replies)
        uploads = {node: ClientAnswer.of(reply.content.config_records[RECORD]).upload for node, reply in usable.items()}
        outcome = self.outcomes[server_round] = self._run.play(uploads, left_out)
        self.left_out[server_round] = dict(outcome.left_out)
        for node, why in outcome.left_out.items():
            log(WARNING, "CrowdFL: round %s leaves out node %s: %s", server_round, node, why)
        if not outcome.averaged:
            why = "too few uploads" if outcome.number is None else "the servers gave it up"
            log(WARNING, "CrowdFL: round %s has no average (%s); the model stays as it was", server_round, why)
        metrics = self._metrics([usable[node].content for node in outcome.averaged])
        is_opened = self.reveal and outcome.averaged and outcome.number is not None
        average = self._run.read(outcome.number or 0) if is_opened else None
        told = self._report(outcome, metrics, self._run.cost(outcome, uploads, average))
        if average is None:
            return None, told
        return self._template.record(self._run.shape.arrays(average.model), self._kept), told

    @property
    def privacy(self) -> PrivacyLedger | None:
        """What the run has spent of the clients' privacy so far, by node; None without `epsilon`."""
        return PrivacyLedger.of(self._run.settings, self._run.costs)

    def _metrics(self, contents: Sequence[RecordDict]) -> MetricRecord | None:
        """Each counts once, as nobody here knows the numbers of samples; unless every client has sent its own."""
        key, records = self.inner.weighted_by_key, []
        known = all(key in record for content in contents for record in content.metric_records.values())
        once = {} if known else {key: 1}
        for content in contents:
            shown = {name: MetricRecord({**record, **once}) for name, record in content.metric_records.items()}
            records.append(RecordDict(dict(shown)))
        if not records or any(len(record.metric_records) != 1 for record in records):
            return None
        try:
            return self.inner.train_metrics_aggr_fn(records, key)
        except Exception as wrong:  # noqa: BLE001 -- a client chooses what it reports, and must not end the run by it
            log(WARNING, "CrowdFL: the clients' metrics do not fit together and are left out: %s", wrong)
            return None

    def _report(self, outcome: RoundOutcome, metrics: MetricRecord | None, cost: RoundPrivacy | None) -> MetricRecord:
        """What a server can honestly say: how many, who not, what noise cost and did, and how much is paid in all. Each client
        learns its own reward."""
        told = MetricRecord(dict(metrics or {}))
        told["crowdfl-averaged"] = len(outcome.averaged)
        told["crowdfl-left-out"] = sorted(outcome.left_out)
        if self._run.budget:
            told["crowdfl-budget-millionths"] = self._run.budget if outcome.averaged else 0
        if cost is not None:
            told["crowdfl-charged"] = sorted(map(int, cost.charged))
            told["crowdfl-max-norm"] = float(self._run.settings.max_norm or 0)
            for name, value in cost.row().items():
                told[f"crowdfl-{name.replace('_', '-')}"] = value
        return told

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        usable, left_out = self._usable(replies)
        for node, why in left_out.items():
            log(WARNING, "CrowdFL: the evaluation of round %s leaves out node %s: %s", server_round, node, why)
        for reply in usable.values():
            reply.content = RecordDict({name: one for name, one in reply.content.items() if name != RECORD})
        try:
            return self.inner.aggregate_evaluate(server_round, list(usable.values())) if usable else None
        except Exception as wrong:  # noqa: BLE001 -- one client must not end the run: weights that add up to 0 would
            log(WARNING, "CrowdFL: the evaluation of round %s does not fit together: %s", server_round, wrong)
            return None


def _path(place: str | Path | None) -> Path | None:
    return None if place is None else Path(place)


def _require_enough(asked: int, fewest: int) -> None:
    if asked < fewest:
        raise SettingsError(
            f"the first round asks {asked} nodes, and an average is of at least {fewest}: start more nodes (with "
            f"min_train_nodes={fewest} Flower waits for them), ask more of them (fraction_train), or accept fewer with "
            "`min_participants`"
        )


def _require_fedavg(strategy: FedAvg) -> None:
    """Whatever looks at single updates, or moves the average, cannot work on sums that nobody reads."""
    if not isinstance(strategy, FedAvg):
        raise SettingsError(f"CrowdFLStrategy goes around a FedAvg, not around {type(strategy).__name__}")
    if type(strategy).aggregate_train is not FedAvg.aggregate_train:
        raise SettingsError(
            f"{type(strategy).__name__} computes the model from single updates or in steps of its own: CrowdFL averages, and "
            "shows nobody a single update; take FedAvg or FedProx, and for steps `server_step`, which clients take too"
        )
