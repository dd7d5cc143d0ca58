"""One server of `crowdfl.local_servers`: it serves until the program that has started it closes its input, or is gone."""

import os
import signal
import sys
import threading
from functools import partial
from pathlib import Path

from crowdfl.errors import CrowdFLError
from crowdfl.services.server import serve_csp, serve_kgc, serve_sp
from crowdfl.settings import CspSettings, KgcSettings, SpSettings
from crowdfl.storage.settings_file import read_service


def main(role: str, path: Path) -> None:
    threading.Thread(target=_end_with_input, name="input", daemon=True).start()
    if role == "kgc":
        serve_kgc(read_service(KgcSettings, path), partial(read_service, KgcSettings, path))
    elif role == "sp":
        serve_sp(read_service(SpSettings, path), partial(read_service, SpSettings, path))
    else:
        serve_csp(read_service(CspSettings, path), partial(read_service, CspSettings, path))


def _end_with_input() -> None:
    """Whatever has become of the program: a killed one closes no door behind itself."""
    os.read(0, 1)
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    try:
        main(sys.argv[1], Path(sys.argv[2]))
    except CrowdFLError as wrong:  # the last line of the log, which the program repeats
        sys.exit(f"{type(wrong).__name__}: {wrong}")
