"""The peers, measured by their own Python in a subprocess."""

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from crowdfl.errors import PeerUnavailable
from crowdfl.lab.bench.crypto.measure import CryptoSettings

__all__ = ["LEFT_OUT", "NOT_INSTALLED", "Phe", "TenSeal", "ask_peer", "measure_phe", "measure_tenseal"]

NOT_INSTALLED = "not installed: make peers"
LEFT_OUT = "left out: --no-peers"
_SCRIPT = Path(__file__).with_name("main.py")
_TIMEOUT = 600.0
_T = TypeVar("_T")


@dataclass(frozen=True)
class Phe:
    """phe, a ciphertext per parameter: figures of one parameter."""

    version: str
    encrypt_seconds: float
    add_seconds: float
    ciphertext_bytes: int


@dataclass(frozen=True)
class TenSeal:
    """TenSEAL's CKKS, 4096 parameters a ciphertext: figures of the whole model."""

    version: str
    encrypt_seconds: float
    encrypt_threads: float
    add_seconds: float
    upload_bytes: int


def measure_phe(python: Path | None, settings: CryptoSettings) -> Phe:
    """phe's figures, measured now on a sample of values."""
    return ask_peer(Phe, python, "crypto", "phe", _numbers(settings))


def measure_tenseal(python: Path | None, settings: CryptoSettings) -> TenSeal:
    """TenSEAL's figures, measured now on the whole model."""
    return ask_peer(TenSeal, python, "crypto", "tenseal", _numbers(settings))


def _numbers(settings: CryptoSettings) -> dict[str, int]:
    return {
        "parameters": settings.parameters,
        "key-bits": 2 * settings.prime_bits,
        "sample": settings.phe_sample,
        "repetitions": settings.repetitions,
    }


def ask_peer(kind: type[_T], python: Path | None, what: str, peer: str, numbers: Mapping[str, int]) -> _T:
    """The peer's answer as a record of this kind; `PeerUnavailable` with its error output when it fails."""
    if python is None:
        raise PeerUnavailable(LEFT_OUT)
    if not python.is_file():
        raise PeerUnavailable(NOT_INSTALLED)
    options = (f"--{name}={number}" for name, number in numbers.items())
    try:
        done = subprocess.run(  # noqa: S603 -- the interpreter the user named, our own script, numbers
            # Isolated: the script's folder stays off the path, where our module names could shadow the peers'.
            [str(python), "-I", str(_SCRIPT), what, peer, *options],
            capture_output=True,
            text=True,
            timeout=_TIMEOUT,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PeerUnavailable(f"{peer} did not run: {error}") from error
    if done.returncode:
        raise PeerUnavailable(f"{peer} failed with exit code {done.returncode}: {done.stderr.strip()}")
    return _read(kind, peer, done.stdout)


def _read(kind: type[_T], peer: str, printed: str) -> _T:
    try:
        answer: Any = json.loads(printed)
    except json.JSONDecodeError as error:
        raise PeerUnavailable(f"{peer} printed no JSON: {error}") from error
    if not isinstance(answer, dict):
        raise PeerUnavailable(f"{peer} printed JSON that is not an object")
    try:
        return kind(**answer)
    except TypeError as error:
        raise PeerUnavailable(f"the answer of {peer} does not fit: {error}") from error
