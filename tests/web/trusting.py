"""A Chromium that trusts an authority as a phone does whose owner has installed it: without any flag about certificates."""

import ctypes
import os
from ctypes import POINTER, Structure, byref, c_char_p, c_int, c_uint, c_ulong, c_void_p
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Playwright

from tests.web import browsers

LIBRARIES = ("libnss3.so", "libsmime3.so")  # what Debian's Chromium itself keeps authorities with


class _Trust(Structure):
    _fields_ = [("ssl", c_uint), ("mail", c_uint), ("code", c_uint)]


def libraries() -> tuple[ctypes.CDLL, ctypes.CDLL] | None:
    try:
        nss, smime = map(ctypes.CDLL, LIBRARIES)
    except OSError:
        return None
    return nss, smime


def _declare(function: Any, result: Any, *arguments: Any) -> Any:
    function.restype, function.argtypes = result, arguments
    return function


def trust(home: Path, authority: Path) -> None:
    """Have the browser of this home folder trust an authority about servers."""
    found = libraries()
    assert found is not None
    nss, smime = found
    database = home / ".pki" / "nssdb"
    database.mkdir(parents=True)
    data = authority.read_bytes()
    assert _declare(nss.NSS_InitReadWrite, c_int, c_char_p)(f"sql:{database}".encode()) == 0
    slot = _declare(nss.PK11_GetInternalKeySlot, c_void_p)()
    if _declare(nss.PK11_NeedUserInit, c_int, c_void_p)(slot):
        _declare(nss.PK11_InitPin, c_int, c_void_p, c_char_p, c_char_p)(slot, None, b"")
    certificate = _declare(smime.CERT_DecodeCertFromPackage, c_void_p, c_char_p, c_int)(data, len(data))
    assert certificate
    wanted = _Trust()
    assert _declare(nss.CERT_DecodeTrustString, c_int, POINTER(_Trust), c_char_p)(byref(wanted), b"C,,") == 0
    keep = _declare(nss.PK11_ImportCert, c_int, c_void_p, c_void_p, c_ulong, c_char_p, c_int)
    assert keep(slot, certificate, 0, b"authority", 0) == 0
    known = _declare(nss.CERT_GetDefaultCertDB, c_void_p)()
    change = _declare(nss.CERT_ChangeCertTrust, c_int, c_void_p, c_void_p, POINTER(_Trust))
    assert change(known, certificate, byref(wanted)) == 0
    _declare(nss.CERT_DestroyCertificate, None, c_void_p)(certificate)
    _declare(nss.PK11_FreeSlot, None, c_void_p)(slot)
    assert nss.NSS_Shutdown() == 0


def launch(playwright: Playwright, home: Path) -> Browser:
    """A browser of this home folder, which refuses whatever it has no reason to trust."""
    options = browsers.options()
    args = [word for word in options["args"] if "certificate" not in word]
    return playwright.chromium.launch(**options | {"args": args, "env": {**os.environ, "HOME": str(home)}})
