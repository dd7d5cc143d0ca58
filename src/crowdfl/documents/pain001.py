"""Credit transfers for a bank: ISO 20022 `pain.001.001.09`, a message that any bank's software takes.

One block of payments for each currency. Amounts have two decimals; the key of a payment is its end-to-end id, by which a bank
tells a repeat.
"""

import datetime
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal

from crowdfl.documents.destination import checked
from crowdfl.errors import SettingsError

NAMESPACE = "urn:iso:std:iso:20022:tech:xsd:pain.001.001.09"
_BIC = re.compile("[A-Z0-9]{4}[A-Z]{2}[A-Z0-9]{2}([A-Z0-9]{3})?")
_TEXT = re.compile(r"[^A-Za-z0-9/\-?:().,'+ ]")  # what SEPA takes
_LONGEST_NAME, _LONGEST_ID = 70, 35


@dataclass(frozen=True)
class Debtor:
    """Whose account pays."""

    name: str
    iban: str = field(repr=False)
    bic: str = ""

    def __post_init__(self) -> None:
        if not _plain(self.name, _LONGEST_NAME):
            raise SettingsError("say whose account pays: a name of letters and digits")
        checked("iban", self.iban)
        if self.bic and not _BIC.fullmatch(self.bic):
            raise SettingsError("this is not a BIC: it has 8 or 11 capitals and digits")


@dataclass(frozen=True)
class Transfer:
    """One payment to an IBAN."""

    key: str
    amount: Decimal
    currency: str
    iban: str = field(repr=False)
    name: str  # of who is paid: a pseudonym
    words: str


def pain001(debtor: Debtor, transfers: Sequence[Transfer], message: str, now: datetime.datetime) -> bytes:
    """The message; `message` is its id."""
    if not transfers:
        raise SettingsError("there is no payment to an IBAN in this batch")
    root = ET.Element("Document", xmlns=NAMESPACE)
    whole = _into(root, "CstmrCdtTrfInitn")
    head = _into(whole, "GrpHdr")
    _texts(head, ("MsgId", _plain(message, _LONGEST_ID)), ("CreDtTm", f"{now:%Y-%m-%dT%H:%M:%S}"))
    _texts(head, ("NbOfTxs", str(len(transfers))), ("CtrlSum", _sum(transfers)))
    _texts(_into(head, "InitgPty"), ("Nm", _plain(debtor.name, _LONGEST_NAME)))
    for currency in dict.fromkeys(one.currency for one in transfers):
        found = [one for one in transfers if one.currency == currency]
        _block(_into(whole, "PmtInf"), debtor, found, f"{message[:31]}-{currency}", now)
    ET.indent(root)
    written: bytes = ET.tostring(root, encoding="utf-8", xml_declaration=True)
    return written + b"\n"


def _block(place: ET.Element, debtor: Debtor, transfers: Sequence[Transfer], name: str, now: datetime.datetime) -> None:
    _texts(place, ("PmtInfId", _plain(name, _LONGEST_ID)), ("PmtMtd", "TRF"), ("BtchBookg", "true"))
    _texts(place, ("NbOfTxs", str(len(transfers))), ("CtrlSum", _sum(transfers)))
    _texts(_into(place, "ReqdExctnDt"), ("Dt", f"{now:%Y-%m-%d}"))
    _texts(_into(place, "Dbtr"), ("Nm", _plain(debtor.name, _LONGEST_NAME)))
    _texts(_into(place, "DbtrAcct", "Id"), ("IBAN", checked("iban", debtor.iban)[1]))
    bank = _into(place, "DbtrAgt", "FinInstnId")
    if debtor.bic:
        _texts(bank, ("BICFI", debtor.bic))
    else:
        _texts(_into(bank, "Othr"), ("Id", "NOTPROVIDED"))
    _texts(place, ("ChrgBr", "SLEV"))
    for one in transfers:
        transfer = _into(place, "CdtTrfTxInf")
        _texts(_into(transfer, "PmtId"), ("EndToEndId", one.key))
        amount = _into(transfer, "Amt", "InstdAmt")
        amount.set("Ccy", one.currency)
        amount.text = f"{one.amount:.2f}"
        _texts(_into(transfer, "Cdtr"), ("Nm", _plain(one.name, _LONGEST_NAME)))
        _texts(_into(transfer, "CdtrAcct", "Id"), ("IBAN", one.iban))
        _texts(_into(transfer, "RmtInf"), ("Ustrd", _plain(one.words, 140)))


def _into(place: ET.Element, *names: str) -> ET.Element:
    for name in names:
        place = ET.SubElement(place, name)
    return place


def _texts(place: ET.Element, *texts: tuple[str, str]) -> None:
    for name, text in texts:
        ET.SubElement(place, name).text = text


def _sum(transfers: Iterable[Transfer]) -> str:
    return f"{sum((one.amount for one in transfers), Decimal(0)):.2f}"


def _plain(text: str, longest: int) -> str:
    return _TEXT.sub(" ", text).strip()[:longest]
