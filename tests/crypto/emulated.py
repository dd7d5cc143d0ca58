"""A device for the GPU backend where there is no GPU: the CUDA source compiled for the processor, lanes as fibers."""

import ctypes
import shutil
from pathlib import Path

import numpy as np

from crowdfl.crypto.gpu.ring import Layout, source
from tests import subprocesses

COMPILER = shutil.which("g++")
_SHIM = Path(__file__).with_name("cuda_emulation.h")


class EmulatedDevice:
    """NumPy arrays, and kernels that run one group of lanes at a time."""

    xp = np
    failures = (MemoryError,)
    block = 4  # a block is one group of the layouts for test keys
    processors = 2

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._libraries: dict[Layout, ctypes.CDLL] = {}

    def launch(self, layout: Layout, kernel: str, threads: int, *args) -> None:
        """Run a kernel; arrays go as addresses, everything in 64 bits."""
        library = self._library(layout)
        words = [x.ctypes.data if isinstance(x, np.ndarray) else int(x) for x in args]
        filled = (ctypes.c_uint64 * 12)(*words, *[0] * (12 - len(words)))
        blocks = -(-threads // layout.lanes)
        library.run_emulated(ctypes.cast(getattr(library, kernel), ctypes.c_void_p), ctypes.c_uint(blocks), filled)

    def host(self, array: np.ndarray) -> np.ndarray:
        return array

    def _library(self, layout: Layout) -> ctypes.CDLL:
        if layout not in self._libraries:
            code = self._folder / "kernels.cu"
            code.write_text(source())
            library = self._folder / f"kernels-{layout.lanes}-{layout.limbs}.so"
            options = ["-x", "c++", "-O1", "-w", "-shared", "-fPIC", "-include", str(_SHIM)]
            command = [COMPILER, *options, *layout.defines(layout.lanes), str(code), "-o", str(library)]
            subprocesses.run(command, check=True)
            self._libraries[layout] = ctypes.CDLL(str(library))
        return self._libraries[layout]
