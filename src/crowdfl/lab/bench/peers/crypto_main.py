"""Run by the peers' own Python, as a plain script: measures one peer and prints one JSON object.

It imports nothing of CrowdFL, and the peers by name, because they are not installed where CrowdFL is type-checked.
"""

import argparse
import importlib
import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

__all__ = ["main"]

_PRECISION = 1e-6  # one exponent for all values: phe then adds without rescaling, its fast case
_ADDITIONS = 20  # adding a sample takes a millisecond or two, too short to time once


def _seconds(action: Callable[[], object], repetitions: int) -> float:
    times = []
    for _ in range(repetitions):
        start = time.perf_counter()
        action()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def _phe(options: argparse.Namespace) -> dict[str, float | str]:
    package, paillier, util = (importlib.import_module(name) for name in ("phe", "phe.paillier", "phe.util"))
    if not util.HAVE_GMP:
        raise SystemExit("phe runs without gmpy2: its figures would flatter CrowdFL")
    public, _ = paillier.generate_paillier_keypair(n_length=options.key_bits)
    weights = importlib.import_module("numpy").random.default_rng(2021).normal(0, 0.5, options.sample).tolist()
    start = time.perf_counter()
    encrypted = [public.encrypt(weight, precision=_PRECISION) for weight in weights]
    encrypt = (time.perf_counter() - start) / len(weights)
    add = _seconds(lambda: [a + b for a, b in zip(encrypted, reversed(encrypted), strict=True)], _ADDITIONS)
    widest = max(number.ciphertext(be_secure=False).bit_length() for number in encrypted)
    return {
        "version": f"{package.__version__} on gmpy2 {importlib.import_module('gmpy2').version()}",
        "encrypt_seconds": encrypt,
        "add_seconds": add / len(weights),
        "ciphertext_bytes": -(-widest // 8),
    }


def _tenseal(options: argparse.Namespace) -> dict[str, float | str]:
    ts, np = importlib.import_module("tenseal"), importlib.import_module("numpy")
    context = ts.context(ts.SCHEME_TYPE.CKKS, 8192, coeff_mod_bit_sizes=[60, 40, 40, 60])
    context.global_scale = 2**40
    weights = np.random.default_rng(2021).normal(0, 0.5, options.parameters)
    # Arrays: TenSEAL takes them a fifth faster than lists.
    chunks = [weights[i : i + 4096] for i in range(0, len(weights), 4096)]

    def encrypt() -> list[Any]:
        return [ts.ckks_vector(context, chunk) for chunk in chunks]

    first, second = encrypt(), encrypt()
    busy, start = time.process_time(), time.perf_counter()
    seconds = _seconds(encrypt, options.repetitions)
    threads = (time.process_time() - busy) / (time.perf_counter() - start)
    return {
        "version": str(ts.__version__),
        "encrypt_seconds": seconds,
        "encrypt_threads": threads,
        "add_seconds": _seconds(lambda: [a + b for a, b in zip(first, second, strict=True)], options.repetitions),
        "upload_bytes": sum(len(chunk.serialize()) for chunk in first),
    }


def main() -> None:
    """Measure the peer named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("peer", choices=("phe", "tenseal"))
    parser.add_argument("--parameters", type=int, required=True)
    parser.add_argument("--key-bits", type=int, required=True)
    parser.add_argument("--sample", type=int, required=True)
    parser.add_argument("--repetitions", type=int, required=True)
    options = parser.parse_args()
    measure = _phe if options.peer == "phe" else _tenseal
    sys.stdout.write(json.dumps(measure(options)))


if __name__ == "__main__":
    main()
