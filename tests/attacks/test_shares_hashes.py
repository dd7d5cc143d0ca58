"""`shares`: every hash, tag and signature that a party sees, and what keeps it from testing guesses with it.

A campaign is played by the real roles while everything that they pass to each other is noted, and every hash that anybody
takes. A hash in what a party has sent or received must cover 32 fresh bytes that the party cannot know, or nothing but bytes
that it knows. What a party can expand or open from what it has counts as known.
"""

import base64
import hashlib
import hmac
import os
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import fields, is_dataclass
from typing import Any

import pytest

from crowdfl.crypto import randomness
from crowdfl.crypto.long_bytes import Long, whole
from crowdfl.crypto.sealing import ReaderKey
from crowdfl.crypto.signing import SigningKey
from crowdfl.protocols.profile import ParticipantKeys
from crowdfl.protocols.shares.circuits import compare, lanes
from crowdfl.protocols.shares.dealing import correlations, rounds
from crowdfl.protocols.shares.round import average, csp, rewards, sp, upload
from crowdfl.simulation.host import Host
from tests.attacks.campaign import Campaign

FRESH = 32
LABEL = re.compile(rb"crowdfl (?!invitation)[a-z ]+ \d|DSSEv1 \d+ application/vnd.crowdfl.([a-z-]+)\+json \d+ ")
PIECE = 8  # bytes that a party has seen in a row count as known; so few are found by chance in one case of 2^50

ASKED = re.compile(r'"task":"(\w+)","number":"(\w+)","device":(\d),"signing":"(\w+)","reading":"(\w+)"')

KNOWN, SALTED = "knows it", "salted"

# What is hashed, tagged or signed: who sees that and knows the contents, and for whom there is a salt in it.
EXPECTED: dict[str, dict[str, str]] = {
    # Documents: everyone who gets one gets it whole.
    "definition": {KNOWN: "CSP KGC SP p0 requester"},
    "initial weights": {KNOWN: "CSP KGC SP p0 requester"},
    "appointment": {KNOWN: "CSP KGC SP p0 requester"},
    "crowdfl shares keys 2": {KNOWN: "CSP KGC SP p0 requester"},
    "invitation": {KNOWN: "CSP KGC SP p0"},
    "enrolment-request": {KNOWN: "CSP KGC SP p0"},
    "crowdfl enrolment 3": {KNOWN: "CSP KGC SP p0"},
    "certificate": {KNOWN: "CSP SP p0"},
    "enrolment-end": {KNOWN: "KGC requester"},
    "order": {KNOWN: "SP requester"},
    "tag of a dealt file": {KNOWN: "CSP KGC SP"},
    # Uploads.
    "upload": {KNOWN: "SP p0"},
    "crowdfl shares 1": {KNOWN: "SP p0", SALTED: "CSP"},
    "crowdfl upload 1": {KNOWN: "CSP SP p0"},
    # A round. Servers' commitments are opened a step later, and salted until then.
    "crowdfl base 1": {KNOWN: "CSP SP p0"},
    "crowdfl transcript 1": {KNOWN: "CSP SP"},
    "transcript": {KNOWN: "CSP SP"},
    "request of a step": {KNOWN: "CSP SP"},
    "crowdfl manifest 1": {KNOWN: "CSP SP"},
    "crowdfl accept 1": {KNOWN: "CSP SP"},
    "crowdfl verdict 1": {KNOWN: "CSP SP"},
    # The average. The seed of a server's mask is 32 fresh bytes, which readers open and the other server does not.
    "crowdfl opened 1": {KNOWN: "CSP SP p0"},
    "seed of a mask": {KNOWN: "p0", SALTED: "CSP SP"},
    "sealed seed": {KNOWN: "CSP SP p0", SALTED: "CSP"},
    "crowdfl record 2": {KNOWN: "CSP SP p0"},
    "crowdfl next base 2": {KNOWN: "CSP SP p0"},
    # Rewards: of those who have not claimed, CSP sees commitments with salts that it does not know.
    "crowdfl commitment 1": {KNOWN: "CSP SP", SALTED: "CSP"},
    "crowdfl claim 4": {KNOWN: "CSP SP p0"},
    "crowdfl reward statement 1": {KNOWN: "CSP SP p0"},
    "claim": {KNOWN: "CSP SP"},
    "crowdfl pay statement 1": {KNOWN: "CSP SP"},
    "crowdfl attestation 3": {KNOWN: "CSP SP"},
}
# Hashes without a label of their own, by who takes them first.
NAMES = {
    "Requester._signed": "initial weights",
    "Head.digest": "upload",
    "offer_sum": "seed of a mask",
    "open_sum": "seed of a mask",
    "MaskedPart.seal_hashes": "sealed seed",
    "Transcript.after": "transcript",
    "Csp.answer": "claim",
    "SpConversation.ask": "request of a step",
    "_tag": "tag of a dealt file",
}


class Watch:
    """What every party has passed on or received, and every hash that was taken."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.known: dict[str, set[bytes]] = defaultdict(set)
        self.drawn: set[bytes] = set()
        self.expanded: list[tuple[bytes, bytes]] = []
        self.opened: list[tuple[bytes, bytes]] = []
        self.hashed: dict[bytes, tuple[str, bytes]] = {}  # by hash: what it is of, and what went in
        self._hash_everything(patch)
        self._draw_everything(patch)

    def _hash_everything(self, patch: pytest.MonkeyPatch) -> None:
        sha256, new_tag, sign, watch = hashlib.sha256, hmac.new, SigningKey.sign, self

        class Noted:
            def __init__(self, data: bytes = b"") -> None:
                self._data, self._site = data, _caller()

            def update(self, data: bytes) -> None:
                self._data += data

            def digest(self) -> bytes:
                return watch._note(self._site, self._data, sha256(self._data).digest())

            def hexdigest(self) -> str:
                return self.digest().hex()

        class NotedTag:
            def __init__(self, key: bytes, digestmod: str) -> None:
                self._key, self._site, self._tag = key, _caller(), new_tag(key, digestmod=digestmod)
                self.update = self._tag.update

            def digest(self) -> bytes:
                return watch._note(self._site, self._key, self._tag.digest())  # nobody tests a body without the key

        def noted_sign(key: SigningKey, message: bytes) -> bytes:
            return self._note(_caller(), message, sign(key, message))

        patch.setattr(hashlib, "sha256", Noted)
        patch.setattr(hmac, "new", NotedTag)
        patch.setattr(SigningKey, "sign", noted_sign)

    def _draw_everything(self, patch: pytest.MonkeyPatch) -> None:
        def noted_draw(count: int) -> bytes:
            self.drawn.add(found := os.urandom(count))
            return found

        patch.setattr(randomness, "SOURCE", ContextVar("drawn", default=noted_draw))
        for module in (average, compare, correlations, csp, lanes, rewards, rounds, sp, upload):
            if hasattr(module, "expand"):
                patch.setattr(module, "expand", self._expanding(module.expand))
            if hasattr(module, "Expansion"):
                patch.setattr(module, "Expansion", self._expanding(module.Expansion))
        patch.setattr(ReaderKey, "open", self._opening(ReaderKey.open))
        seal, added = average.seal_to, average._opened

        def noted_seal(*given: Any) -> bytes:
            sealed = seal(*given)
            self.drawn.add(sealed[:FRESH])  # a fresh public key
            return sealed

        def noted_sum(shape: Any, offer: Any, *reply: Any) -> Any:
            found = added(shape, offer, *reply)
            self.expanded += [(offer.sums, found.sums()), (offer.total, found.total)]  # CSP knows what it adds
            return found

        patch.setattr(average, "seal_to", noted_seal)
        patch.setattr(average, "_opened", noted_sum)

    def _expanding(self, expand: Callable[..., Long]) -> Callable[..., Long]:
        def noted(seed: bytes, context: bytes, length: int) -> Long:
            found = expand(seed, context, length)
            self.expanded.append((seed, whole(found)))
            return found

        return noted

    def _opening(self, opens: Callable[..., bytes]) -> Callable[..., bytes]:
        def noted(key: Any, sealed: bytes, context: bytes) -> bytes:
            found = opens(key, sealed, context)
            self.opened.append((key.private, found))
            return found

        return noted

    def _note(self, site: str, data: bytes, found: bytes) -> bytes:
        label = LABEL.match(data)
        name = NAMES.get(site, site) if label is None else (label[1] or label[0]).decode()
        self.hashed.setdefault(found, (name, data))
        return found

    # Afterwards.

    def conclude(self) -> None:
        """What follows from what each party has: seeds to expand, seals to open, hashes of what it knows."""
        self.passed = {party: b"\n".join(known) for party, known in self.known.items()}
        for known in self.known.values():
            pending = [*self.expanded, *self.opened, *((data, output) for output, (_, data) in self.hashed.items())]
            while True:
                text = b"\n".join(known)
                more = {output for given, output in pending if output not in known and _covered(given, text)}
                if not more:
                    break
                known.update(more)

    def _why(self, data: bytes, text: bytes, fresh: set[bytes]) -> str:
        """What makes a hash of this useless for guesses."""
        if any(value in data and value not in text for value in fresh):
            return SALTED
        if _covered(data, text):
            return KNOWN
        return "nothing"

    def seen(self) -> dict[str, dict[str, str]]:
        found: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
        fresh = {value for value in self.drawn if len(value) >= FRESH}
        expansions = [output for seed, output in self.expanded if seed in fresh]
        fresh |= {out[i : i + FRESH] for out in expansions for i in range(0, len(out) - FRESH + 1, FRESH)}
        for party, passed in self.passed.items():
            text = b"\n".join(self.known[party])
            for output, (label, data) in self.hashed.items():
                if output in passed or output.hex().encode() in passed:
                    found[label][self._why(data, text, fresh)].add(party)
        return {label: {why: " ".join(sorted(who)) for why, who in row.items()} for label, row in found.items()}


def _caller() -> str:
    """Who takes a hash, by its name in the code; helpers that only pass on are left out."""
    frame: Any = sys._getframe(2)
    while frame.f_code.co_name in ("sha256", "sha256_of", "sign"):
        frame = frame.f_back
    return str(frame.f_code.co_qualname)


def _covered(data: bytes, text: bytes) -> bool:
    """By pieces of the text, as long as each can be. Labels, and the lengths that stand before parts, need not be known."""
    if data in text:
        return True
    label = LABEL.match(data)
    reached = [label.end(), label.end() + 1] if label else [0]  # some labels have a byte behind them
    tried: set[int] = set()
    while reached:
        place = reached.pop()
        if place == len(data) or (len(data) - place < PIECE and data[-PIECE:] in text):
            return True
        if place in tried:
            continue
        tried.add(place)
        length = _longest(data, place, text)
        # A piece may run into the length of the next part, which stands there elsewhere too.
        reached += [place + length - less for less in range(4) if length - less >= PIECE]
        if data[place : place + 3] == bytes(3):
            reached.append(place + 4)
    return False


def _longest(data: bytes, place: int, text: bytes) -> int:
    """Of the pieces that begin here and are in the text, how long the longest is; found by halving."""
    low, high = 0, len(data) - place
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if data[place : place + middle] in text else (low, middle - 1)
    return low


def watching(watch: Watch, carry: Callable[..., Any]) -> Callable[..., Any]:
    """Of what passes between two processes, both ends know."""

    def carried(host: Any, sender: str, receiver: str, name: str, arguments: Any, named: Any = None) -> Any:
        result = carry(host, sender, receiver, name, arguments, named)
        passed = result[-FRESH:] if name == "dealt" else result  # of a dealt file, which is long, its tag
        for end in (sender, receiver):
            who = end.removeprefix("people/")
            watch.known[who.upper() if who in ("kgc", "sp", "csp") else who].update(_pieces([arguments, named, passed]))
        return result

    return carried


def _pieces(value: Any) -> list[bytes]:
    if isinstance(value, ParticipantKeys):
        return []  # its owner's alone: who it is, and what proves it, is what passes
    if isinstance(value, bytes):
        return [value]
    if isinstance(value, str):
        hexadecimal = re.findall(r"(?:[0-9a-f]{2}){20,}", value)
        coded = [run + "=" * (-len(run) % 4) for run in re.findall(r"[\w-]{40,}", value)]
        plain = value.replace('\\"', '"')  # documents in a certificate
        proven = [f"crowdfl enrolment 3 {' '.join(asked)}".encode() for asked in ASKED.findall(plain)]
        said = [value.encode(), plain.encode(), *proven]
        return [*said, *map(bytes.fromhex, hexadecimal), *map(base64.urlsafe_b64decode, coded)]
    if isinstance(value, Mapping):
        return [piece for entry in value.items() for piece in _pieces(list(entry))]
    if is_dataclass(value) and not isinstance(value, type):
        return [piece for entry in fields(value) for piece in _pieces(getattr(value, entry.name))]
    return [piece for entry in value for piece in _pieces(entry)] if isinstance(value, list | tuple) else []


@pytest.mark.parametrize(
    "pay", ["equal", *(pytest.param(pay, marks=pytest.mark.second) for pay in ("samples", "distance"))]
)
def test_no_hash_or_signature_that_a_party_sees_can_test_a_guess(pay: str, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch(monkeypatch)
    monkeypatch.setattr(Host, "carry", watching(watch, Host.carry))
    campaign = Campaign(budget="9.00", pay=pay, server_step="fedavgm", rounds=3)
    campaign.play()
    campaign.play(["p4"])
    campaign.federation.claim("p0")
    for who in [party for party in watch.known if re.fullmatch(r"p[1-9]", party)]:
        del watch.known[who]
    task, p0 = str(campaign.federation.task), campaign.host.people["p0"]
    for known in watch.known.values():  # what everyone may have who knows the task's id
        known.update(_pieces([task, f"crowdfl task {task} round 1", f"crowdfl task {task} round 2"]))
        known.update(_pieces([campaign.host.sp_link.papers(task)]), [campaign.host.sp_link.initial_weights(task)])
    watch.known["p0"].update([p0.keys.signing.private, p0.keys.reader.private])
    watch.conclude()
    only_hidden = ("crowdfl commitment 1", "crowdfl reward statement 1")  # equal pay follows from who was in
    expected = {label: row for label, row in EXPECTED.items() if pay != "equal" or label not in only_hidden}
    assert watch.seen() == expected
