"""The client's half: a Flower mod around the app's own functions. The app sees plain arrays; what leaves is shares.

SP and KGC are reached through the records of the message that is being answered.
"""

import contextlib
import logging
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp.typing import ClientAppCallable

from crowdfl.documents.signed import Definition
from crowdfl.errors import (
    CrowdFLError,
    InvitationRefused,
    KeyMismatch,
    NotReady,
    ProtocolError,
    SettingsError,
    SlotOverflow,
    UnknownParticipant,
)
from crowdfl.flower.admission import ARRAYS, CONFIG, METRICS, RECORD, WEIGHT_KEY, shown_to_app, shown_to_query
from crowdfl.flower.client_state import INVITATION, NodeInvitation, joined, kgc_of, note_joined, open_blobs
from crowdfl.flower.wire import ENROL, READ, ClientAnswer, Instruction, Template
from crowdfl.learning.models.shape import Weights
from crowdfl.protocols.profile import ParticipantKeys, Tools
from crowdfl.protocols.uploads import upload_digest
from crowdfl.roles.participant.event_words import event_words
from crowdfl.roles.participant.participant import Participant
from crowdfl.roles.ports import Blobs
from crowdfl.roles.records import PaidClaim, PayWord


class AskedToEnrol(Exception):
    """Not a failure: KGC was asked, through the server, and its answer comes with a later message."""


@dataclass
class RelayedKgc:
    """KGC behind the server: its answer, sealed to this client, comes with the next message."""

    sealed: bytes = field(repr=False)
    request: str = ""

    def enrol(self, task: str, invitation: str, request: str) -> bytes:
        del task, invitation
        self.request = request
        if not self.sealed:
            raise AskedToEnrol
        return self.sealed


def last_read(blobs: Blobs) -> int:
    """The number of the last round whose average this client has read. Not counted from a number that the server chose."""
    kept = [name.split("/") for name in blobs.listing() if name.endswith("/chain")]
    return max((int(parts[1]) for parts in kept if parts[0] == "rounds" and parts[1].isdigit()), default=0)


@dataclass
class MessageSp:
    """What a participant asks SP for, from one message; what it gives SP is kept for the reply."""

    instruction: Instruction
    blobs: Blobs
    certificate: str = ""

    def papers(self, task: str) -> tuple[str, str]:
        del task
        return self.instruction.definition, self.instruction.appointment

    def initial_weights(self, task: str) -> bytes:
        del task
        if not self.instruction.initial:
            raise NotReady("the server has not sent the initial weights")
        return self.instruction.initial

    def status(self, task: str) -> dict[str, Any]:
        """The rounds that are new to this client, and the one that is open."""
        told = self.instruction
        last = last_read(self.blobs)
        rounds = [(number, state) for number, state in told.rounds() if number > last]
        rounds += [(told.number, "open")] if told.number else []
        entries = [{"number": number, "state": state, "uploads": 0} for number, state in rounds]
        return {"task": task, "state": "running", "epoch": "", "dropped": 0, "rounds": entries}

    def is_drawn(self, task: str, number: int, keys: ParticipantKeys) -> bool:
        """Flower's server asks those whom it has chosen, and nobody else."""
        del task, number, keys
        return True

    def recruit(self, task: str, key: bytes) -> str:
        """Flower's server invites its clients: their apps bring invitations."""
        del key
        raise InvitationRefused(f"the server of task {task} lists no task: its client needs an invitation")

    def enrol(self, task: str, certificate: str, consent: str | None) -> str | None:
        del task, consent
        self.certificate = certificate
        return None

    def send(self, task: str, number: int, keys: ParticipantKeys, upload: bytes) -> str:
        """It leaves with the reply. Whether it was averaged, CSP's signed word in the round's publication says."""
        del task, number, keys
        return upload_digest(upload)

    def uploaded(self, task: str, number: int, keys: ParticipantKeys) -> str | None:
        del task, keys
        return upload_digest(self.blobs.get(f"rounds/{number}/upload"))

    def average(self, task: str, number: int, keys: ParticipantKeys) -> bytes:
        del task, keys
        sent = dict(zip(self.instruction.numbers, self.instruction.publications, strict=False))
        if number not in sent:
            raise NotReady(f"the server has not sent the average of round {number}")
        return sent[number]

    def end(self, task: str, number: int, keys: ParticipantKeys) -> bytes:
        del task, keys
        sent = dict(zip(self.instruction.ended, self.instruction.ends, strict=False))
        if number not in sent:
            raise NotReady(f"the server has not sent CSP's word about round {number}")
        return sent[number]

    def reward(self, task: str, number: int, keys: ParticipantKeys) -> bytes:
        del task
        sent = dict(zip(self.instruction.rewarded, self.instruction.envelopes, strict=False))
        if number not in sent:
            raise UnknownParticipant(f"{keys.who} has no reward of round {number}: its upload was not averaged")
        return sent[number]

    def claim(self, task: str, claim: bytes, keys: ParticipantKeys) -> PaidClaim:
        del task, claim, keys
        raise NotReady("rewards of a run with Flower are claimed once the run is over: docs/flower.md")

    def pay_to(self, task: str, sealed: bytes, keys: ParticipantKeys) -> bytes:
        """As a claim."""
        self.claim(task, sealed, keys)
        return b""

    def pay_words(self, task: str, keys: ParticipantKeys) -> Mapping[int, PayWord]:
        """Nothing is booked before the run is over."""
        del task, keys
        return {}

    def leave(self, task: str, keys: ParticipantKeys, *, withdraw: bool) -> dict[str, list[int]]:
        del task, keys, withdraw
        return {}


def pruned(blobs: Blobs) -> int:
    """Forget averages and uploads that nothing builds on any more; the number of the last round that was read."""
    last = last_read(blobs)
    for name in list(blobs.listing()):
        folder, _, rest = name.partition("/")
        number, _, what = rest.partition("/")
        if folder == "rounds" and number.isdigit():
            old_average = what == "average" and int(number) < last
            old_upload = what == "upload" and int(number) <= last
            if old_average or old_upload:
                blobs.delete(name)
    return last


_WARNINGS = ("upload rejected", "reward refused", "reward missing", "average missing", "record missing", "words differ")
LEAST_PARTICIPANTS = 3
# In a node's configuration.
_KEY, _LEAST = "crowdfl-kgc-key", "crowdfl-least-participants"
_TRIAL = "crowdfl-trial"
_REWARDS = "crowdfl.rewards"  # in the context's state: millionths by round, for the app
_OUT_OF_BOUNDS = (
    "SlotOverflow: the number of samples, or a weight, is beyond what the task takes; the node's log has it"
)
_ACTOR = "flwr.simulation.ray_transport.ray_actor"
_log = logging.getLogger("flwr.crowdfl")


class CrowdFLMod:
    """The client's half, in `ClientApp(mods=[...])`.

    Args:
        kgc_key: KGC's public key in hex, which a deployment must know from elsewhere than the server. A node's own
            configuration (`crowdfl-kgc-key`) goes before it.
        least_participants: take part only where at least so many are averaged.
        train_metrics: False lets no number of training out of here. "weighted" lets the number of samples out too, so that the
            server can weight these metrics by it: it then knows that of every client.
        trial: take the server's word for KGC's key, where KGC and CSP are the server's own. Flower's simulation engine does so
            anyway.
    """

    def __init__(
        self,
        *,
        kgc_key: str | None = None,
        least_participants: int = LEAST_PARTICIPANTS,
        train_metrics: bool | Literal["weighted"] = True,
        trial: bool = False,
    ) -> None:
        if train_metrics not in (True, False, "weighted"):
            raise SettingsError(f'train_metrics={train_metrics!r}: expected True, False or "weighted"')
        self.kgc_key, self.least_participants = kgc_key, least_participants
        self.train_metrics, self.trial = train_metrics, trial

    def __call__(self, message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        category = message.metadata.message_type.partition(".")[0]
        if category == "query":
            return self._query(message, context, call_next)
        if category not in ("train", "evaluate"):  # `get_parameters` of the older API would show a model in the clear
            raise ProtocolError(
                f"CrowdFL's mod lets no message of type {category!r} through: train, evaluate and query only"
            )
        found = message.content.config_records.get(RECORD)
        if found is None:  # an update in the clear must not leave because the server has forgotten its half
            raise ProtocolError(
                f"this client's app has CrowdFL's mod, and the server sent a plain {category!r} message: put CrowdFLStrategy "
                "around the server's strategy, or take the mod out of the app"
            )
        instruction = Instruction.of(found)
        try:
            return _Client(self, instruction, context).answer(message, call_next, is_training=category == "train")
        except _AppFailed as failed:
            return failed.reply
        except SlotOverflow as wrong:  # it has the number of samples, which is nobody else's business
            _log.warning("CrowdFL: nothing is sent: %s", wrong)
            return _reply(message, ClientAnswer(instruction.task, refused=_OUT_OF_BOUNDS))
        except CrowdFLError as wrong:
            return _reply(message, ClientAnswer(instruction.task, refused=f"{type(wrong).__name__}: {wrong}"))

    def _query(self, message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        """A server that could choose what is asked would read a client's data, one question after the other."""
        tasks = joined(context).values()
        agreed = [Template.from_training(Definition.open(text).training).agreed for text in tasks if text]
        prepared = [one for one in agreed if one.is_prepared]
        if "" in tasks or not (prepared or self.is_trial(context)):
            raise ProtocolError(
                "a query before this node has joined its task: nobody has signed what its app may be asked. First train; for a "
                f"trial, start the node with {_TRIAL}=true"
            )
        asked = message.metadata.message_type
        sent = {name: (_form(one), one) for name, one in message.content.items()}
        shown = shown_to_query(None, asked, sent)
        for one in prepared:  # of one run, hardly more than one
            shown = shown_to_query(one, asked, sent)
        message.content = RecordDict(shown)
        with prepared[0].in_force(context) if prepared else contextlib.nullcontext():
            return _without_arrays(call_next(message, context))

    def is_trial(self, context: Context) -> bool:
        """Asked for here, or in Flower's simulation engine: a server cannot talk a node into one."""
        return _is_simulated() or self.trial or context.node_config.get(_TRIAL) is True


crowdfl_mod = CrowdFLMod()


def _without_arrays(reply: Message) -> Message:
    """Arrays leave a client of CrowdFL's sealed, or not at all."""
    if reply.has_content() and reply.content.array_records:
        raise ProtocolError("only training returns arrays, which leave sealed: return numbers in a MetricRecord")
    return reply


def _is_simulated() -> bool:
    """In an actor of Flower's simulation engine. An app on a real node that uses Ray for itself is in none."""
    ray = sys.modules.get("ray")
    if ray is None or _ACTOR not in sys.modules or not ray.is_initialized():
        return False
    return ray.get_runtime_context().get_actor_id() is not None


def _form(record: ArrayRecord | ConfigRecord | MetricRecord) -> str:
    return ARRAYS if isinstance(record, ArrayRecord) else CONFIG if isinstance(record, ConfigRecord) else METRICS


def _reply(message: Message, answer: ClientAnswer) -> Message:
    return Message(RecordDict({RECORD: ConfigRecord(answer.values())}), reply_to=message)


class _AppFailed(Exception):
    """The app's own function answered with an error, which goes to the server as it is."""

    def __init__(self, reply: Message) -> None:
        super().__init__()
        self.reply = reply


class _Client:
    """One participant of one task, for the time of one message."""

    def __init__(self, mod: CrowdFLMod, instruction: Instruction, context: Context) -> None:
        self.mod, self.instruction, self.context = mod, instruction, context
        self.blobs = open_blobs(context, instruction.task)
        self.events: list[tuple[str, Mapping[str, Any]]] = []
        self.invitation = NodeInvitation.read(context.node_config.get(INVITATION))
        self.relay = RelayedKgc(instruction.sealed)
        self.sp = MessageSp(instruction, self.blobs)
        self.person = Participant(
            instruction.task,
            self.blobs,
            self.relay,
            self.sp,
            self._kgc_key(),
            Tools.unwatched(),
            on_event=self._told,
            least_participants=self._least(),
        )

    def _kgc_key(self) -> bytes:
        """Whoever makes this key up can read everything: only a trial in one process takes the server's word for it."""
        pinned = self.context.node_config.get(_KEY) or self.mod.kgc_key
        known = self.invitation.kgc_key if self.invitation else str(pinned) if pinned else None
        sent = self.instruction.kgc_key
        if known is not None and known.lower() != sent.hex():
            raise KeyMismatch("the server names another KGC than this node knows: nothing is sent; ask who runs it")
        if known is None and not (self.instruction.local and self.mod.is_trial(self.context)):
            raise SettingsError(
                "this node does not know KGC's public key, and whoever makes one up reads everything: start it with "
                f"{INVITATION} or {_KEY} in --node-config, as docs/flower.md says; for a trial, with {_TRIAL}=true"
            )
        return sent

    def _least(self) -> int:
        least = self.context.node_config.get(_LEAST, self.mod.least_participants)
        if isinstance(least, bool) or not isinstance(least, int) or least < 1:
            raise SettingsError(f"the node's {_LEAST!r} is {least!r}: expected a whole number of at least 1")
        return least

    def _told(self, what: str, details: Mapping[str, Any]) -> None:
        self.events.append((what, details))
        if "scaled" in details:
            _log.warning(
                "CrowdFL: this update is longer than the task's max_norm and was scaled by %s: tell the app's owner",
                details["scaled"],
            )
        if details.get("clipped"):
            _log.warning("CrowdFL: %s weights changed by more than the task's clip", details["clipped"])
        if what == "rewarded":
            _log.info("CrowdFL: round %s earned %s millionths", details["round"], details["millionths"])
            before = self.context.state.metric_records.get(_REWARDS, {})
            earned = {**before, f"round-{details['round']}": details["millionths"]}
            self.context.state[_REWARDS] = MetricRecord(earned)
        if what in _WARNINGS:
            _log.warning("CrowdFL: %s", event_words(what, details))

    def answer(self, message: Message, call_next: ClientAppCallable, *, is_training: bool) -> Message:
        if self.instruction.step == ENROL:
            return _reply(message, self.asking())
        if self.instruction.step == READ:
            return _reply(message, self.reading())
        return self.work(message, call_next, is_training=is_training)

    def asking(self) -> ClientAnswer:
        """First contact: keys are made here, and KGC is asked to certify them, through the server."""
        if self.instruction.local:
            _log.warning("CrowdFL: KGC and CSP run in the server's process: this is a trial, and hides nothing from it")
        try:
            self._join()
        except AskedToEnrol:
            return ClientAnswer(self.instruction.task, request=self.relay.request)
        return ClientAnswer(self.instruction.task, certificate=self.sp.certificate)

    def _join(self) -> None:
        """With an invitation of this node's own, KGC is asked directly: the server learns nothing that it could use."""
        if self.invitation is None:
            if not self.instruction.invitation:
                raise InvitationRefused("there is no invitation left for this node: the task's owner must give it one")
            self.person.join(self.instruction.invitation)
            return
        self.invitation.require(self.instruction.task)
        with kgc_of(self.invitation) as kgc:
            self.person.kgc = kgc
            self.person.join(self.invitation.invitation)

    def work(self, message: Message, call_next: ClientAppCallable, *, is_training: bool) -> Message:
        if not self.blobs.has("certificate"):
            if not self.instruction.sealed:
                return _reply(message, ClientAnswer(self.instruction.task, lost=True))
            self._join()
        note_joined(self.context, self.instruction.task)
        if is_training:
            return self._train(message, call_next)
        self.reading()
        reply = self._call(call_next, self._plain(message, self.person.model(), "evaluate", last_read(self.blobs)))
        return reply if reply.has_error() else self._answered(_without_arrays(reply), b"")

    def _call(self, call_next: ClientAppCallable, message: Message) -> Message:
        with self._template().agreed.in_force(self.context):
            return call_next(message, self.context)

    def reading(self) -> ClientAnswer:
        """New averages and rewards, without the app."""
        self.person.step(_no_training)
        last = pruned(self.blobs)
        return ClientAnswer(self.instruction.task, certificate=self.blobs.get("certificate").decode(), last=last)

    def _train(self, message: Message, call_next: ClientAppCallable) -> Message:
        number = self.instruction.number
        replies = []

        def train(model: Weights, _training: Mapping[str, Any], _number: int) -> tuple[Weights, int]:
            replies.append(self._call(call_next, self._plain(message, model, "train", number)))
            if replies[0].has_error():
                raise _AppFailed(replies[0])
            return self._trained(replies[0].content)

        self.person.step(train)
        name = f"rounds/{number}/upload"
        if not self.blobs.has(name):
            raise NotReady(self._why_not())
        reply = replies[0] if replies else Message(RecordDict(), reply_to=message)  # asked twice: the same upload again
        return self._answered(reply, self.blobs.get(name))

    def _why_not(self) -> str:
        if self.blobs.has("stopped"):
            return f"this client takes no further part in the task: {self.blobs.get('stopped').decode()}"
        reasons = [str(details["why"]) for _, details in self.events if "why" in details]
        return reasons[-1] if reasons else "this client did not take part in the round"

    def _plain(self, message: Message, model: Weights, kind: str, number: int) -> Message:
        """The message as the app expects it."""
        template = self._template()
        sent = {name: (_form(one), one) for name, one in message.content.items()}
        asked = message.metadata.message_type
        shown = shown_to_app(
            template.agreed, kind, asked, number, sent, lambda kept: template.record(model, ArrayRecord(dict(kept)))
        )
        message.content = RecordDict(
            {name: ConfigRecord(one) if type(one) is dict else one for name, one in shown.items()}
        )
        return message

    def _template(self) -> Template:
        return Template.from_training(Definition.open(self.blobs.get("definition").decode()).training)

    def _trained(self, content: RecordDict) -> tuple[Weights, int]:
        if len(content.array_records) != 1 or len(content.metric_records) != 1:
            raise ProtocolError("a training function's reply has one ArrayRecord and one MetricRecord, as for FedAvg")
        (arrays,), (metrics,) = content.array_records.values(), content.metric_records.values()
        template = self._template()
        return template.weights(arrays), _whole(metrics, template.agreed.weight_key)

    def _answered(self, reply: Message, upload: bytes) -> Message:
        """What the app has answered, less its arrays and its number of samples: these are in the upload."""
        content = RecordDict(dict(reply.content))
        if upload:
            for key in list(content.array_records):
                del content[key]
            self._hide_samples(content)
        last = pruned(self.blobs)
        certificate = self.blobs.get("certificate").decode()
        answer = ClientAnswer(self.instruction.task, certificate=certificate, upload=upload, last=last)
        content[RECORD] = ConfigRecord(answer.values())
        reply.content = content
        return reply

    def _hide_samples(self, content: RecordDict) -> None:
        hidden = {WEIGHT_KEY, self._template().agreed.weight_key} if self.mod.train_metrics != "weighted" else set()
        for key, metrics in list(content.metric_records.items()):
            shown = {name: value for name, value in metrics.items() if name not in hidden}
            content[key] = MetricRecord(shown if self.mod.train_metrics else {})
        for key in list(content.config_records):
            if not self.mod.train_metrics:
                del content[key]


def _no_training(_model: Weights, _training: Mapping[str, Any], _number: int) -> tuple[Weights, int]:
    raise ProtocolError("the server asked for an evaluation, and opened a round in it")


def _whole(metrics: MetricRecord, key: str) -> int:
    value = metrics.get(key)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise ProtocolError(
            f"the metric {key!r} is the number of samples, a whole number, and the app has not given one"
        )
    return value
