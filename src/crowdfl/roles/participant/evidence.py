"""Where SP's word and CSP's signed record differ: what each said of an upload, kept, and whom to show it to.

SP's word about an upload is its receipt, or a refusal, which it does not sign; CSP's is the record of the round, or its end.
"""

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from crowdfl.codes import Code
from crowdfl.documents.signed import Definition
from crowdfl.reasons import Reason
from crowdfl.roles.ports import Blobs

_KEPT = {"record": "record", "second_record": "second-record", "end": "end"}  # signed by CSP, by the names of blobs
_RECEIPTS = {"receipt": "receipt", "lost_receipt": "lost-receipt", "unused_receipt": "unused"}  # signed by SP


class SpWord(Code):
    """What SP said of an upload, or of a round."""

    TAKEN = "taken", "it has taken your upload"
    REFUSED = "refused", "it has not taken your upload"
    UNUSED = "unused", "it had enough uploads, and has not used yours"
    DELETED = "deleted", "it has deleted your upload"
    NOBODY_LOOKED = "nobody_looked", "no server has looked at the uploads of this round"
    NO_AVERAGE = "no_average", "this round was given up"


class CspWord(Code):
    """What CSP has signed of the same."""

    ACCEPTED = "accepted", "your upload is in the average"
    REJECTED = "rejected", "your upload was checked, and left out"
    ABSENT = "absent", "there is no upload of yours in the average"
    SHOWN = "shown", "your upload was checked"
    TWO_RECORDS = "two_records", "two different records of this round"
    NOTHING = "nothing", "nothing that the platform shows"


_WITHOUT_UPLOAD = (SpWord.REFUSED, SpWord.UNUSED, SpWord.DELETED)


def signed_of(standing: Reason | None) -> CspWord:
    """Of what a record says of somebody."""
    if standing is None:
        return CspWord.ACCEPTED
    return CspWord.ABSENT if standing is Reason.NOT_PASSED_ON else CspWord.REJECTED


def contradicts(said: SpWord | None, signed: CspWord) -> bool:
    """Whether an honest SP could not have said this. One that never answered has said nothing."""
    return said in _WITHOUT_UPLOAD if signed is not CspWord.ABSENT else said is SpWord.TAKEN


@dataclass(frozen=True)
class Evidence:
    """What one participant keeps of its rounds."""

    blobs: Blobs
    rounds: int

    def said(self, number: int) -> SpWord | None:
        """SP's last word about an upload to a round."""
        if number in self._answer().get("deleted", ()):
            return SpWord.DELETED
        for name, word in (("unused", SpWord.UNUSED), ("refused", SpWord.REFUSED)):
            if self.blobs.has(f"rounds/{number}/{name}"):
                return word
        return SpWord.TAKEN if holds_receipt(self.blobs, number) else None

    def _answer(self) -> Mapping[str, list[int]]:
        """To a withdrawal."""
        kept = self.blobs.get("withdrawn") if self.blobs.has("withdrawn") else b"{}"
        found: Mapping[str, list[int]] = json.loads(kept)
        return found

    def has_difference(self, number: int) -> bool:
        return self.blobs.has(f"rounds/{number}/differs")

    def keep(self, number: int, said: SpWord, signed: CspWord) -> None:
        """Once for a round: the first difference stands."""
        self.blobs.put(f"rounds/{number}/differs", json.dumps([said, signed]).encode())

    def differences(self) -> dict[int, tuple[SpWord, CspWord]]:
        """By round."""
        found = {}
        for number in range(1, self.rounds + 1):
            if self.blobs.has(f"rounds/{number}/second-record"):
                found[number] = self.said(number) or SpWord.TAKEN, CspWord.TWO_RECORDS
            elif self.has_difference(number):
                said, signed = json.loads(self.blobs.get(f"rounds/{number}/differs"))
                found[number] = SpWord(said), CspWord(signed)
        return found

    def export(self, definition: Definition, record_key: bytes) -> dict[str, Any]:
        """All of it, with what it is checked with; what was signed, as the bytes that were."""
        rounds = [self._round(number, *pair) for number, pair in self.differences().items()]
        return {
            "task": definition.task,
            "send_to": {"contact": definition.who.contact, "payer": definition.payer.hex()},
            "record_key": record_key.hex(),
            "certificate": self.blobs.get("certificate").decode(),
            "withdrawal": dict(self._answer()),
            "rounds": rounds,
        }

    def _round(self, number: int, said: SpWord, signed: CspWord) -> dict[str, Any]:
        folder = f"rounds/{number}"
        word = {"code": said, "words": said.words}
        if self.blobs.has(f"{folder}/refused"):
            word["answer"] = self.blobs.get(f"{folder}/refused").decode()
        for name, blob in _RECEIPTS.items():
            if self.blobs.has(f"{folder}/{blob}"):
                word[name] = self.blobs.get(f"{folder}/{blob}").decode()
        record = {"code": signed, "words": signed.words}
        for name, blob in _KEPT.items():
            if self.blobs.has(f"{folder}/{blob}"):
                record[name] = base64.b64encode(self.blobs.get(f"{folder}/{blob}")).decode()
        return {"round": number, "sp": word, "csp": record}


def holds_receipt(blobs: Blobs, number: int) -> bool:
    """Also one of an upload that SP says to have lost since: its signature stands."""
    return blobs.has(f"rounds/{number}/receipt") or blobs.has(f"rounds/{number}/lost-receipt")
