"""The peers, measured by their own Python in a subprocess."""

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from crowdfl.errors import PeerUnavailable
from crowdfl.lab.bench.crypto.setting import Setting

__all__ = ["NOT_INSTALLED", "Phe", "TenSeal", "ask", "ask_script", "measure_phe", "measure_tenseal", "read_answer"]

NOT_INSTALLED = "not installed: make peers"
_SCRIPT = Path(__file__).with_name("crypto_main.py")
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


def measure_phe(python: Path, setting: Setting) -> Phe:
    """phe's figures, measured now on a sample of values."""
    return read_answer(Phe, ask(python, "phe", setting))


def measure_tenseal(python: Path, setting: Setting) -> TenSeal:
    """TenSEAL's figures, measured now on the whole model."""
    return read_answer(TenSeal, ask(python, "tenseal", setting))


def ask(python: Path, peer: str, setting: Setting) -> dict[str, Any]:
    """What `crowdfl bench crypto` wants to know of a peer."""
    numbers = {
        "parameters": setting.parameters,
        "key-bits": 2 * setting.prime_bits,
        "sample": setting.phe_sample,
        "repetitions": setting.repetitions,
    }
    return ask_script(python, _SCRIPT, peer, numbers)


def ask_script(python: Path, script: Path, peer: str, numbers: Mapping[str, int]) -> dict[str, Any]:
    """What the peer's process prints; `PeerUnavailable` with its complaint when it fails."""
    if not python.is_file():
        raise PeerUnavailable(NOT_INSTALLED)
    try:
        done = subprocess.run(  # noqa: S603 -- the interpreter the user named, our own script, numbers
            # Isolated: the script's folder stays off the path, where our module names could shadow the peers'.
            [str(python), "-I", str(script), peer, *(f"--{name}={number}" for name, number in numbers.items())],
            capture_output=True,
            text=True,
            timeout=_TIMEOUT,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PeerUnavailable(f"{peer} did not run: {error}") from error
    if done.returncode:
        raise PeerUnavailable(f"{peer} failed with exit code {done.returncode}: {done.stderr.strip()}")
    try:
        answer = json.loads(done.stdout)
    except json.JSONDecodeError as error:
        raise PeerUnavailable(f"{peer} printed no JSON: {error}") from error
    if not isinstance(answer, dict):
        raise PeerUnavailable(f"{peer} printed JSON that is no object")
    return answer


def read_answer(kind: type[_T], answer: dict[str, Any]) -> _T:
    """The answer as a record; `PeerUnavailable` if it is none."""
    try:
        return kind(**answer)
    except TypeError as error:
        raise PeerUnavailable(f"the peer's answer does not fit: {error}") from error
