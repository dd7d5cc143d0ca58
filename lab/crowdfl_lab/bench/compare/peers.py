"""Run by the peers' own Python, as a plain script: measures a round of one peer and prints one JSON object: processor time of a
participant and of the one server, bytes of a participant.

It imports nothing of CrowdFL, and the peers by name, because they are not installed where CrowdFL is type-checked.
"""

import argparse
import importlib
import json
import logging
import statistics
import sys
import time
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

import numpy as np

_PRECISION = 1e-6  # phe: one exponent for all values, so that it adds without rescaling, its fast case
_ADDITIONS = 20  # adding a sample takes a millisecond or two, too short to time once
_SLOTS = 4096  # TenSEAL: of a CKKS vector at 8192
_DISTINCT = 2  # uploads that TenSEAL's server adds up in turn: their number changes nothing


def _models(options: argparse.Namespace, count: int) -> list[Any]:
    return [np.random.default_rng(2021 + i).normal(0, 0.5, options.parameters) for i in range(count)]


def _timed(action: Callable[[], Any]) -> tuple[float, Any]:
    start = time.process_time()
    result = action()
    return time.process_time() - start, result


def _median(action: Callable[[], object], repetitions: int) -> float:
    return statistics.median(_timed(action)[0] for _ in range(repetitions))


def _phe_keys(options: argparse.Namespace) -> tuple[str, float, Any, Any]:
    """Its version, the seconds that the keys took, and the keys."""
    package, paillier, util = (importlib.import_module(name) for name in ("phe", "phe.paillier", "phe.util"))
    if not util.HAVE_GMP:
        raise SystemExit("phe runs without gmpy2: its figures would flatter CrowdFL")
    version = f"{package.__version__} on gmpy2 {importlib.import_module('gmpy2').version()}"
    seconds, (public, private) = _timed(lambda: paillier.generate_paillier_keypair(n_length=options.key_bits))
    return version, seconds, public, private


def _phe_values(public: Any, private: Any, weights: list[float]) -> dict[str, float]:  # noqa: ANN401 -- phe's keys
    """Seconds of one value to encrypt, to add and to decrypt; bytes of a ciphertext; the largest error of a mean of two."""
    encrypt, numbers = _timed(lambda: [public.encrypt(w, precision=_PRECISION) for w in weights])
    sums = [a + b for a, b in zip(numbers, reversed(numbers), strict=True)]
    add = _median(lambda: [a + b for a, b in zip(numbers, reversed(numbers), strict=True)], _ADDITIONS)
    decrypt, opened = _timed(lambda: [private.decrypt(number) for number in sums])
    widest = max(number.ciphertext(be_secure=False).bit_length() for number in numbers)
    off = max(abs(o - w - v) for o, w, v in zip(opened, weights, reversed(weights), strict=True)) / 2
    seconds = {"encrypt": encrypt, "add": add, "decrypt": decrypt}
    each = {name: taken / len(weights) for name, taken in seconds.items()}
    return each | {"bytes": -(-widest // 8), "off": off}


def _tenseal_context() -> tuple[Any, Any]:
    ts = importlib.import_module("tenseal")
    context = ts.context(ts.SCHEME_TYPE.CKKS, 8192, coeff_mod_bit_sizes=[60, 40, 40, 60])
    context.global_scale = 2**40
    return ts, context


def _phe_round(options: argparse.Namespace) -> dict[str, Any]:
    version, make_seconds, public, private = _phe_keys(options)
    weights = _models(options, 1)[0][: 2 * options.sample].tolist()
    half = _phe_values(public, private, weights[: options.sample])  # two sizes: that cost follows size is seen
    each = _phe_values(public, private, weights)
    whole = {name: value * options.parameters for name, value in each.items()}
    others = options.participants - 1
    participant = {"key": make_seconds, "before": whole["decrypt"], "after": whole["encrypt"]}
    servers = {"server": whole["add"] * others, "server_dropped": whole["add"] * (others - options.dropped)}
    sizes = {"upload": whole["bytes"], "download": whole["bytes"], "off": each["off"]}
    how = {"sample": f"{2 * options.sample} values", "linearity": each["encrypt"] / half["encrypt"]}
    return participant | servers | sizes | how | {"version": version}


def _tenseal_round(options: argparse.Namespace) -> dict[str, Any]:
    importlib.import_module("tenseal")  # off the clock
    make_seconds, (ts, context) = _timed(_tenseal_context)
    models = _models(options, _DISTINCT)

    def encrypt(model: Any) -> list[bytes]:  # noqa: ANN401 -- an array, by name only
        return [ts.ckks_vector(context, model[i : i + _SLOTS]).serialize() for i in range(0, len(model), _SLOTS)]

    def add(crowd: int) -> list[bytes]:
        total = [ts.ckks_vector_from(context, chunk) for chunk in uploads[0]]
        for i in range(1, crowd):
            parsed = [ts.ckks_vector_from(context, chunk) for chunk in uploads[i % _DISTINCT]]
            total = [mine + theirs for mine, theirs in zip(total, parsed, strict=True)]
        return [chunk.serialize() for chunk in total]

    def read(chunks: list[bytes]) -> Any:  # noqa: ANN401
        return np.concatenate([np.array(ts.ckks_vector_from(context, chunk).decrypt()) for chunk in chunks])

    encrypt(models[0])
    after, first = _timed(lambda: encrypt(models[0]))
    uploads = [first, encrypt(models[1])]
    server, summed = _timed(lambda: add(options.participants))
    dropped, _ = _timed(lambda: add(options.participants - options.dropped))
    before, opened = _timed(lambda: read(summed))
    counts = [-(-options.participants // 2), options.participants // 2]
    true = sum(count * model for count, model in zip(counts, models, strict=True))
    seconds = {"key": make_seconds, "before": before, "after": after, "server": server, "server_dropped": dropped}
    off = float(np.abs(opened[: len(true)] - true).max() / options.participants)
    sizes = {"upload": sum(map(len, first)), "download": sum(map(len, summed))}
    return seconds | sizes | {"version": str(ts.__version__), "off": off}


class _Grid:
    """Flower's clients in this process: its own client code answers its own server code, and both are on a clock."""

    def __init__(self, options: argparse.Namespace, models: list[Any], dropped: Iterable[int]) -> None:
        names = ("app", "common", "common.serde", "common.secure_aggregation.secaggplus_constants")
        self.app, self.common, self.serde, self.keys = (importlib.import_module(f"flwr.{name}") for name in names)
        self.compat = importlib.import_module("flwr.compat.common.recorddict_compat")
        self.mod = importlib.import_module("flwr.client.mod").secaggplus_mod
        self.models, self.dropped = models, set(dropped)
        nodes = range(1, options.participants + 1)
        self.contexts = {nid: self.app.Context(0, nid, {}, self.app.RecordDict(), {}) for nid in nodes}
        self.totals = {"before": 0.0, "after": 0.0, "upload": 0.0, "download": 0.0}  # of all clients
        self.away = 0.0  # seconds that the server spent waiting in here

    def send_and_receive(self, messages: Iterable[Any], *, timeout: float | None = None) -> list[Any]:
        """Every client in turn; the dropped ones fall silent once they would have sent their masked model."""
        del timeout
        start = time.process_time()
        replies = [self._reply(message) for message in messages]
        self.away += time.process_time() - start
        return replies

    def _reply(self, message: Any) -> Any:  # noqa: ANN401
        nid = message.metadata.dst_node_id
        stage = message.content.config_records[self.keys.RECORD_KEY_CONFIGS][self.keys.Key.STAGE]
        if nid in self.dropped and stage == self.keys.Stage.COLLECT_MASKED_VECTORS:
            return self.app.Message(self.app.Error(0, "dropped out"), reply_to=message)
        message, size = self._wire(message)
        self.totals["download"] += size
        training = 0.0

        def train(asked: Any, _: Any) -> Any:  # noqa: ANN401
            nonlocal training
            training, reply = _timed(lambda: self._trained(asked, nid))
            return reply

        seconds, reply = _timed(lambda: self.mod(message, self.contexts[nid], train))
        early = stage in (self.keys.Stage.SETUP, self.keys.Stage.SHARE_KEYS)
        self.totals["before" if early else "after"] += seconds - training
        reply, size = self._wire(reply)
        self.totals["upload"] += size
        return reply

    def _wire(self, message: Any) -> tuple[Any, int]:  # noqa: ANN401
        """As it arrives, and its bytes: Flower's own form, off the clock."""
        proto = self.serde.message_to_proto(message)
        return self.serde.message_from_proto(proto), proto.ByteSize()

    def _trained(self, asked: Any, nid: int) -> Any:  # noqa: ANN401
        common = self.common
        parameters = common.ndarrays_to_parameters([self.models[nid % len(self.models)]])
        result = common.FitRes(common.Status(common.Code.OK, ""), parameters, 100, {})
        return self.app.Message(self.compat.fitres_to_recorddict(result, False), reply_to=asked)


def _shares(options: argparse.Namespace) -> int:
    """Few enough neighbours to be SecAgg+, enough that whoever is dropped, a majority of each neighbourhood is left."""
    return int(min(2 * options.dropped + 1, options.participants - 1 + options.participants % 2))


def _flower_round(options: argparse.Namespace, models: list[Any], dropped: int) -> tuple[_Grid, float, Any]:
    """Flower's own workflow from setup to the average; returns the clients' clocks, the server's time and the average."""
    server, workflow = importlib.import_module("flwr.server"), importlib.import_module("flwr.server.workflow")
    constant, grid = workflow.constant, _Grid(options, models, range(1, dropped + 1))
    common, compat = grid.common, grid.compat
    nothing = common.ndarrays_to_parameters([np.zeros(options.parameters)])
    proxies = [SimpleNamespace(node_id=nid, cid=str(nid)) for nid in grid.contexts]
    strategy = server.strategy.FedAvg()
    strategy.configure_fit = lambda *_: [(proxy, common.FitIns(nothing, {})) for proxy in proxies]
    context = server.LegacyContext(grid.app.Context(0, 0, {}, grid.app.RecordDict(), {}), strategy=strategy)
    context.state.config_records[constant.MAIN_CONFIGS_RECORD] = grid.app.ConfigRecord({constant.Key.CURRENT_ROUND: 1})
    context.state.array_records[constant.MAIN_PARAMS_RECORD] = compat.parameters_to_arrayrecord(nothing, True)
    shares = _shares(options)
    seconds, _ = _timed(lambda: workflow.SecAggPlusWorkflow(shares, shares // 2 + 1)(grid, context))
    record = context.state.array_records[constant.MAIN_PARAMS_RECORD]
    average = common.parameters_to_ndarrays(compat.arrayrecord_to_parameters(record, True))[0]
    return grid, seconds - grid.away, average


def _flower_rounds(options: argparse.Namespace) -> dict[str, Any]:
    logging.disable(logging.CRITICAL)  # stdout is for the one object
    identity = importlib.import_module("flwr.supercore.task_identity").TaskIdentity
    identity.run_id, identity.node_id, identity.task_id = 1, 0, 1  # messages want to name their run and sender
    version = importlib.import_module("importlib.metadata").version("flwr")
    masks = importlib.import_module("flwr.common.secure_aggregation.secaggplus_utils").pseudo_rand_gen
    models = _models(options, 3)
    whole, server, average = _flower_round(options, models, 0)
    _, server_dropped, average_dropped = _flower_round(options, models, options.dropped)
    off = 0.0
    for got, gone in ((average, 0), (average_dropped, options.dropped)):
        present = [models[nid % len(models)] for nid in range(1 + gone, options.participants + 1)]
        off = max(off, float(np.abs(got - np.mean(present, axis=0)).max()))
    # Two seeds of 32 bytes whose four-byte words have the same XOR: one mask if the seed is folded to 32 bits.
    one, other = bytes(32), b"\x01\x02\x03\x04" * 2 + bytes(24)
    folded = bool((masks(one, 1 << 32, [(64,)])[0] == masks(other, 1 << 32, [(64,)])[0]).all())
    means = {name: total / options.participants for name, total in whole.totals.items()}
    facts = {"shares": _shares(options), "seed_folded_to_32_bits": folded}
    servers = {"server": server, "server_dropped": server_dropped}
    return means | servers | {"version": version, "off": off, "facts": facts}


_MEASURES = {"phe": _phe_round, "tenseal": _tenseal_round, "flower": _flower_rounds}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("peer", choices=tuple(_MEASURES))
    for name in ("parameters", "participants", "dropped", "key-bits", "sample"):
        parser.add_argument(f"--{name}", type=int)
    options = parser.parse_args()
    sys.stdout.write(json.dumps(_MEASURES[options.peer](options)))


if __name__ == "__main__":
    main()
