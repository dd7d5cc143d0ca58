"""Clients that fail or cheat: each is named with a reason and left out alone, and the others' average stands."""

import json
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pytest
from flwr.app import ConfigRecord, Context, Error, Message, RecordDict
from flwr.serverapp.strategy import FedAvg

from crowdfl.crypto.signing import SigningKey
from crowdfl.flower import CrowdFLStrategy, crowdfl_mod
from crowdfl.protocols.messages import Limits
from crowdfl.protocols.shares.round.upload import UpdateEncoder, UploadBody, upload_statement
from tests.flower.inside.grid import ServedGrid, average, distance, initial, make_app

NODES = range(1, 6)
CHEAT = 2
LIMITS = Limits(None, 10**6, max_entries=10**6)


@dataclass
class Kept:
    """What a cheat knows: everyone's answers of the rounds before, and its own context."""

    answers: list[dict[int, dict]] = field(default_factory=list)
    context: Context | None = None


# The protocol's own refusals are in tests/protocols/shares/test_bad_input.py; here, what becomes of a client by them.
Cheat = Callable[[dict, dict[int, dict], Kept], dict | Message | None]


def body_of(answer: dict) -> UploadBody:
    return UploadBody.from_bytes(answer["upload"], LIMITS)


def signed(body: UploadBody, key: SigningKey, **changes) -> bytes:
    fields = {name: getattr(body, name) for name in UploadBody.__annotations__} | changes
    made = UploadBody(**fields)
    signature = key.sign(upload_statement(made.place, made.who, made.digest, made.sealed))
    return UploadBody(**fields | {"signature": signature}).to_bytes()


def own_key(kept: Kept) -> SigningKey:
    (record,) = kept.context.state.config_records.values()
    return SigningKey(bytes.fromhex(json.loads(record["keys"])[0]))


def garbage(own, _others, _kept):
    return own | {"upload": secrets.token_bytes(len(own["upload"]))}


def silent(_own, _others, _kept):
    return None


def copied(own, others, _kept):
    return own | {"upload": others[1]["upload"]}


def disguised(own, others, _kept):
    """Another's papers and upload: as if this node were that one."""
    return own | {"upload": others[1]["upload"], "certificate": others[1]["certificate"]}


def replayed(own, _others, kept):
    return own | {"upload": kept.answers[0][CHEAT]["upload"]}


def foreign_signature(own, _others, _kept):
    return own | {"upload": signed(body_of(own), SigningKey.fresh())}


def broken_seal(own, _others, kept):
    body = body_of(own)
    return own | {"upload": signed(body, own_key(kept), sealed=secrets.token_bytes(len(body.sealed)))}


def wrong_type(own, _others, _kept):
    return own | {"upload": "not bytes"}


def other_task(own, _others, _kept):
    return own | {"task": "0" * 64}


KINDS = {
    garbage: "FormatError",
    silent: "no reply",
    copied: "BadSignature",
    disguised: "BadSignature",
    replayed: "RoundNotOpen",
    foreign_signature: "BadSignature",
    broken_seal: "seal does not open",
    wrong_type: "upload",
    other_task: "another task",
}


def play(cheat: Cheat | None, app=None) -> CrowdFLStrategy:
    kept = Kept()
    grid = ServedGrid(app or make_app(mods=[crowdfl_mod]), NODES)

    def change(replies):
        if not replies or not all(reply.has_content() and "crowdfl" in reply.content for reply in replies.values()):
            return replies
        answers = {node: dict(reply.content["crowdfl"]) for node, reply in replies.items()}
        if cheat is None or not all("upload" in answer for answer in answers.values()):
            return replies
        kept.context = grid.contexts[CHEAT]
        if len(kept.answers) == 1:
            sent = cheat(answers[CHEAT], answers, kept)
            if sent is None:
                del replies[CHEAT]
            else:
                replies[CHEAT].content["crowdfl"] = ConfigRecord(sent)
        kept.answers.append(answers)
        return replies

    grid.change = change
    strategy = CrowdFLStrategy(FedAvg(fraction_evaluate=0.0), reveal=True)
    strategy.result = strategy.start(grid, initial(), num_rounds=2)
    return strategy


def is_left_out(strategy: CrowdFLStrategy, words: str) -> None:
    """Node 2 alone, in round 2 alone, and the average is that of the others."""
    assert strategy.left_out[1] == {}
    assert list(strategy.left_out[2]) == [CHEAT], strategy.left_out
    assert words in strategy.left_out[2][CHEAT]
    model = average(average(initial(), NODES), [node for node in NODES if node != CHEAT])
    assert distance(strategy.result.arrays, model) < 1e-5


@pytest.mark.parametrize("cheat", KINDS, ids=lambda cheat: cheat.__name__)
def test_a_cheating_client_is_named_and_left_out(cheat):
    is_left_out(play(cheat), KINDS[cheat])


class _Second:
    """A mod around CrowdFL's that does something to node 2's second training."""

    def __init__(self, act):
        self.act, self.times = act, 0

    def __call__(self, message, context, call_next):
        told = message.content["crowdfl"]
        if context.node_id != CHEAT or told["number"] != 2:
            return call_next(message, context)
        return self.act(message, context, call_next)


def _huge(message, context, call_next):
    """An update that no honest device makes: far beyond the task's norm."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(UpdateEncoder, "encode", lambda _self, weights, _base, _n: np.full(len(weights), 2**40, np.int64))
        return call_next(message, context)


def _crashes(message, context, call_next):
    del message, context, call_next
    raise RuntimeError("out of memory")


def _error(message, _context, _call_next):
    return Message(Error(1, "no data today"), reply_to=message)


def _in_the_clear(message, context, call_next):
    reply = call_next(message, context)
    reply.content = RecordDict({name: one for name, one in reply.content.items() if name != "crowdfl"})
    return reply


OUTSIDE = {
    _huge: "out of bounds",
    _crashes: "out of memory",
    _error: "no data today",
    _in_the_clear: "lacks CrowdFL's mod",
}


@pytest.mark.parametrize("act", OUTSIDE, ids=lambda act: act.__name__)
def test_a_client_beyond_the_bounds_or_out_of_order_is_named_and_left_out(act):
    is_left_out(play(None, make_app(mods=[_Second(act), crowdfl_mod])), OUTSIDE[act])


def test_the_honest_are_all_in():
    assert play(None).left_out == {1: {}, 2: {}}


def test_a_newcomer_cannot_come_as_another():
    grid, asked = ServedGrid(make_app(mods=[crowdfl_mod]), NODES), []

    def change(replies):
        if not asked:  # everyone's request to KGC
            requests = {node: dict(reply.content["crowdfl"])["request"] for node, reply in replies.items()}
            stolen = dict(replies[CHEAT].content["crowdfl"]) | {"request": requests[1]}
            replies[CHEAT].content["crowdfl"] = ConfigRecord(stolen)
        asked.append(replies)
        return dict(sorted(replies.items()))

    grid.change = change
    strategy = CrowdFLStrategy(FedAvg(fraction_evaluate=0.0), reveal=True)
    strategy.start(grid, initial(), num_rounds=1)
    assert list(strategy.left_out[1]) == [CHEAT]
    assert "BadSignature" in strategy.left_out[1][CHEAT]  # the invitation is another's: it has not signed these keys


def test_more_than_a_third_of_cheats_costs_the_round_and_no_more():
    """The servers give such a round up: whom they left out must not be a choice of who is averaged. Clients that CSP names
    stop, as they would if an honest upload of theirs had been named."""
    grid = ServedGrid(make_app(mods=[_Everyone(_huge, rounds=(1,), nodes=(2, 3)), crowdfl_mod]), NODES)
    strategy = CrowdFLStrategy(FedAvg(fraction_evaluate=0.0), reveal=True)
    found = strategy.start(grid, initial(), num_rounds=2)
    assert strategy.outcomes[1].averaged == ()
    assert set(strategy.left_out[1]) == {2, 3}  # whose fault it was
    honest = [node for node in NODES if node not in (2, 3)]
    assert sorted(strategy.outcomes[2].averaged) == honest
    assert distance(found.arrays, average(initial(), honest)) < 1e-5


class _Everyone:
    def __init__(self, act, rounds, nodes):
        self.act, self.rounds, self.nodes = act, rounds, nodes

    def __call__(self, message, context, call_next):
        told = message.content["crowdfl"]
        acts = context.node_id in self.nodes and told["number"] in self.rounds
        return self.act(message, context, call_next) if acts else call_next(message, context)
