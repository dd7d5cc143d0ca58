"""A server that was set back, and runs a round again: what was dealt for it meets other coins, and the other server subtracts.

The difference of two messages of lanes under the same masks is (S1 - S2) u for every upload u of the round: all of a model with
no more weights than lanes. A server's guard knows what has left. Where records and guard are set back together, nobody does.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np

from crowdfl.crypto.long_bytes import Long, whole
from crowdfl.crypto.randomness import secret_bytes
from crowdfl.crypto.sealing import ReaderKey
from crowdfl.crypto.shares.sketch import Sketch
from crowdfl.documents.signed import Definition
from crowdfl.errors import CrowdFLError, ServiceUnavailable
from crowdfl.learning.models.shape import ModelShape
from crowdfl.protocols.exchange import run_exchange
from crowdfl.protocols.messages import Limits, Message
from crowdfl.protocols.profile import Tools
from crowdfl.protocols.shares.chain import sha256
from crowdfl.protocols.shares.circuits.lanes import LaneMaker, coins
from crowdfl.protocols.shares.dealing.keys import SharesCspBundle
from crowdfl.protocols.shares.round.manifest import ManifestReply, RoundManifest, StepReply, StepRequest, open_seals
from crowdfl.protocols.shares.round.upload import UploadBody, expanded_update
from crowdfl.protocols.shares.shape import SharesShape
from crowdfl.roles.participant.participant import Train
from crowdfl.roles.sp.aggregators import upload_name
from crowdfl.roles.sp.core import SpOptions
from crowdfl.settings import TaskSettings
from crowdfl.simulation.host import Call, Deliver, Host
from crowdfl_lab.audit.copied_disk import CopiedDisk
from crowdfl_lab.audit.finding import ENTRY, SHARES, Attack, Finding, Floats, found_in

_WEIGHTS, _LANES, _PEOPLE, _UNITS = 40, 128, 4, 10**4
_MANIFEST, _LANE_STEP = 1, 2
_SETTINGS = TaskSettings.of(
    profile="shares",
    weighting="equal",
    max_norm=3.0,
    clip=3.0,
    decimals=4,
    rounds=2,
    min_participants=3,
    max_participants=5,
    lanes=_LANES,
)


_TITLE = "every upload of a round that is run again, by {}"
_BY_CSP, _BY_SP = _TITLE.format("CSP"), _TITLE.format("SP")
_SP_RECORDS = Attack("SP's records set back", "new", _BY_CSP, ("CSP",), ENTRY)
_SP_BOTH = Attack("SP and its guard set back", "new", _BY_CSP, ("CSP",), ENTRY, conceded=True)
_CSP_RECORDS = Attack("CSP's records set back", "new", _BY_SP, ("SP",), ENTRY)
_CSP_BOTH = Attack("CSP and its guard set back", "new", _BY_SP, ("SP",), ENTRY, conceded=True)


def attack_set_back() -> Iterator[Finding]:
    """Each server: its records alone, which its guard holds against it; then both places, which is conceded."""
    for attack in (_SP_RECORDS, _SP_BOTH, _CSP_RECORDS, _CSP_BOTH):
        task = _Task()
        again = task.sp_again if attack.attackers == ("CSP",) else task.csp_again
        guess, note = again(with_guard=attack.conceded)
        truth = np.concatenate([task.updates[who] for who in sorted(task.updates)])
        yield attack.score(SHARES, guess, np.zeros(len(truth)), truth, found_in(guess, truth), note)


@dataclass
class _Heard:
    """What passed in one run of the round."""

    manifest: RoundManifest
    nonce: bytes
    lanes: bytes = field(default=b"", repr=False)


class _Task:
    """A round that is closed, and that CSP was not asked about."""

    def __init__(self) -> None:
        tools = Tools.unwatched(insecure_test_key=True)
        options = SpOptions(tools, checker=tools.backend, min_claim_window=0.0, opens_rounds=False)
        self.heard: list[_Heard] = []
        self.is_deviating = False
        self.host = host = Host(tools, options=options, wire=self._carry)
        shape = ModelShape(("w",), ((_WEIGHTS,),))
        self.task = host.create(Definition("p", "t", "r", shape, _SETTINGS, 10**6, {}), [np.zeros(_WEIGHTS)])
        self.shape = SharesShape(host.sp.core.definition(self.task).spec)
        draw = np.random.default_rng(5)
        self.updates: dict[str, Floats] = {}
        people = [host.join(self.task, f"p{number}") for number in range(_PEOPLE)]
        host.sp.steps.open(self.task, 0)
        for person in people:
            change = np.rint(draw.normal(size=_WEIGHTS) * 0.05 * _UNITS)
            self.updates[person.keys.who] = change
            person.step(_moved(change))

    def sp_again(self, *, with_guard: bool) -> tuple[Floats | None, str]:
        """CSP deviates: it gives other coins the second time."""
        host, self.is_deviating = self.host, True
        before = CopiedDisk(host.disk, "sp", with_guard=with_guard)
        host.clock.time = host.sp.store.round(self.task, 1).last_call(_SETTINGS) + 1  # type: ignore[attr-defined]
        self._tick()
        host.sp = host.new_sp(disk=before)
        self._tick()
        if len(self.heard) < 2 or not self.heard[-1].lanes:
            end = host.sp.store.task(self.task).end
            return None, f"ended: {'' if end is None else end.reason.partition(':')[0]}"
        bundle = SharesCspBundle.from_bytes(host.csp.bundles.get(f"{self.task}.csp"), Limits.plain())
        manifest = self.heard[0].manifest
        seeds = open_seals(manifest, ReaderKey(bundle.sealing))
        own = [expanded_update(seeds[who], manifest.place, who, self.shape.share_bytes)[:] for who in manifest.names]
        return self._read(own), ""

    def csp_again(self, *, with_guard: bool) -> tuple[Floats | None, str]:
        """SP deviates: it asks the set back CSP for the round again, with the same manifest."""
        host = self.host
        uploads = {
            who: host.sp.blobs.get(upload_name(self.task, 1, entry.digest))
            for who in self.updates
            if (entry := host.sp.store.upload(self.task, 1, who)) is not None
        }
        before = CopiedDisk(host.disk, "csp", with_guard=with_guard)
        try:
            for again in (False, True):
                if again:
                    host.csp = host.new_csp(disk=before)
                sp = cast(Any, host.sp.aggregators._new(self.task, 1))
                for person in host.people.values():
                    sp.enrol(person.keys.identity)
                sp.add_all(uploads)
                self._ask_for_lanes(sp)
        except CrowdFLError as refusal:
            return None, f"refused: {type(refusal).__name__}"
        shares = {who: UploadBody.from_bytes(upload, self.shape.limits()).shares for who, upload in uploads.items()}
        return self._read([shares[who] for who in self.heard[0].manifest.names]), ""

    def _ask_for_lanes(self, sp: Any) -> None:  # noqa: ANN401
        def ask(asked: Long) -> Any:  # noqa: ANN401
            request = whole(asked)
            message = self._opened(request)
            if message.step > _LANE_STEP:
                raise _Enough
            reply = self.host.csp.answer(self.task, request)
            payload = whole(StepReply.from_bytes(reply, Limits.plain(len(reply))).payload)
            if message.step == _MANIFEST:
                nonce = ManifestReply.from_bytes(payload, self.shape.limits()).nonce
                self.heard.append(_Heard(self._manifest(message), nonce))
            else:
                self.heard[-1].lanes = payload
            return lambda: reply

        try:
            run_exchange(sp.publish(final=False), ask)
        except _Enough:
            return

    def _carry(self, call: Call, deliver: Deliver) -> Any:  # noqa: ANN401
        if call.name != "answer" or not self.is_deviating:
            return deliver()
        request = call.arguments[1]
        if Message.kind_of(request) != StepRequest.kind:  # once SP has ended the task
            raise ServiceUnavailable("CSP is away")
        message = self._opened(request)
        if message.step == _MANIFEST:
            self.heard.append(_Heard(self._manifest(message), secret_bytes(32)))
            return StepReply(sha256(request), ManifestReply(self.heard[-1].nonce, (), b"").to_bytes(), b"").to_bytes()
        self.heard[-1].lanes = whole(message.payload)
        raise ServiceUnavailable("CSP is away")

    def _tick(self) -> None:
        """Until SP waits for CSP, or has ended the task."""
        for _ in range(20):
            try:
                self.host.tick()
            except ServiceUnavailable:
                return

    def _opened(self, request: bytes) -> StepRequest:
        return StepRequest.from_bytes(request, Limits.plain(len(request)))

    def _manifest(self, message: StepRequest) -> RoundManifest:
        return RoundManifest.from_bytes(message.payload, self.shape.limits())

    def _read(self, own: list[Any]) -> Floats:
        """Both messages, and one's own lanes of both runs: what is left is the difference of two sketches of each upload."""
        first, second = self.heard[0], self.heard[-1]
        widths, names = self.shape.widths, first.manifest.names
        length = len(names) * widths.lanes * self.shape.ring.bytes
        mask = np.uint64((1 << widths.k) - 1)
        sent = [self.shape.ring.decode(run.lanes[:length]).reshape(len(names), -1) for run in (first, second)]
        drawn = [coins(first.manifest.digest, run.nonce) for run in (first, second)]
        mine = [LaneMaker(self.shape, one).lanes(own, len(names)) for one in drawn]
        left = ((sent[0] - sent[1] + mine[0] - mine[1]) & mask).astype(np.int64)
        left[left >= 1 << (widths.k - 1)] -= 1 << widths.k
        sketches = self._sketch(drawn[0]) - self._sketch(drawn[1])
        rows = {
            who: np.rint(np.linalg.lstsq(sketches, row.astype(float), rcond=None)[0])
            for who, row in zip(names, left, strict=True)
        }
        return np.concatenate([rows[who] for who in sorted(rows)])

    def _sketch(self, drawn: bytes) -> Floats:
        widths = self.shape.widths
        sketch = Sketch(drawn, widths.parameters, widths.rows, widths.buckets)
        found = np.zeros((widths.lanes, _WEIGHTS))
        for row in range(widths.rows):
            buckets, signs = sketch.of(row)
            np.add.at(found, (row * widths.buckets + buckets, np.arange(_WEIGHTS)), signs)
        return found


def _moved(change: Floats) -> Train:
    return lambda base, _settings, _number: ([np.asarray(base[0]) + change / _UNITS], 1)


class _Enough(Exception):
    """SP has what it wants of a round."""
