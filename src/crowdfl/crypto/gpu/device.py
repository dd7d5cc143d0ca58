"""A GPU as the rest of the package sees it: arrays, and kernels that are launched on them. CuPy is imported here, and late."""

from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Protocol

import numpy as np

from crowdfl.errors import BackendUnavailable

_ADVICE = "install the extra `cuda` on a machine with an NVIDIA GPU and its driver, or compute on threads"


def source() -> str:
    return resources.files("crowdfl.crypto.gpu").joinpath("kernels.cu").read_text("utf-8")


@dataclass(frozen=True)
class Layout:
    """How a number modulo N lies in threads: `lanes` threads of `limbs` 32-bit limbs each, the latter even."""

    lanes: int
    limbs: int
    blocks: int  # that a multiprocessor should hold at a time: bounds the registers of a thread

    @property
    def size(self) -> int:
        return self.lanes * self.limbs

    def defines(self, block: int) -> tuple[str, ...]:
        return (f"-DTPI={self.lanes}", f"-DL={self.limbs}", f"-DBLOCK={block}", f"-DMIN_BLOCKS={self.blocks}")


class Device(Protocol):
    """Arrays by an array module (CuPy, or NumPy where kernels are emulated), and launches."""

    xp: Any
    failures: tuple[type[Exception], ...]  # what array operations and launches raise when the device fails

    @property
    def block(self) -> int: ...  # threads of a block
    @property
    def processors(self) -> int: ...  # multiprocessors
    def host(self, array: Any) -> Any: ...  # noqa: ANN401 -- a NumPy array with the contents of a device array

    def launch(self, layout: Layout, kernel: str, threads: int, *args: Any) -> None:  # noqa: ANN401 -- arrays and ints
        """Run a kernel on at least so many threads. A plain integer is passed as 64 bits."""


class CupyDevice:
    """The first NVIDIA GPU, through CuPy."""

    block = 128

    def __init__(self) -> None:
        try:
            import cupy
        except ImportError as error:
            raise BackendUnavailable(f"CuPy cannot be imported ({error}): {_ADVICE}") from None
        self.xp: Any = cupy
        try:
            properties = self.xp.cuda.runtime.getDeviceProperties(0)
        except self.xp.cuda.runtime.CUDARuntimeError as error:
            raise BackendUnavailable(f"no GPU can be used ({error}): {_ADVICE}") from None
        self.processors = int(properties["multiProcessorCount"])
        self.name = str(properties["name"].decode())
        cuda = self.xp.cuda
        self.failures: tuple[type[Exception], ...] = (
            cuda.memory.OutOfMemoryError,
            cuda.runtime.CUDARuntimeError,
            cuda.driver.CUDADriverError,
            cuda.compiler.CompileException,
        )
        self._module = cache(self._compile)

    def launch(self, layout: Layout, kernel: str, threads: int, *args: Any) -> None:  # noqa: ANN401
        function = self._module(layout).get_function(kernel)
        wide = tuple(np.uint64(x) if isinstance(x, int) else x for x in args)
        function((-(-threads // self.block),), (self.block,), wide)

    def host(self, array: Any) -> Any:  # noqa: ANN401
        return self.xp.asnumpy(array)

    def _compile(self, layout: Layout) -> Any:  # noqa: ANN401
        # The driver's compiler comes with CuPy; it keeps what it compiled in the user's cache folder.
        return self.xp.RawModule(code=source(), options=("--std=c++17", *layout.defines(self.block)))
