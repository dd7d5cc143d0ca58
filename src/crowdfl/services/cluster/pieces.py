"""What travels between a role and the workers of its own cluster: rows as bytes, and recipes to make kernels from.

Nothing here shows its numbers in a repr, for Dask logs what a failed piece was called with.
"""

from dataclasses import dataclass, field, fields
from functools import lru_cache
from typing import Any

from gmpy2 import mpz

from crowdfl.crypto.blocks import Block, from_bytes
from crowdfl.crypto.compute import Kernel, release_lock_while_computing
from crowdfl.crypto.kernels import (
    BucketProduct,
    FixedBase,
    FixedBasePower,
    MulMod,
    MultiPow,
    PartialDecrypt,
    PowEach,
    PowMod,
)
from crowdfl.services.cluster.worker import own_keys, share_name

__all__ = ["KernelRecipe", "Piece", "Rows", "recipe_of", "run_piece", "run_rows"]

_PLAIN: dict[str, type] = {kind.__name__: kind for kind in (BucketProduct, MulMod, MultiPow, PowEach, PowMod)}


@dataclass(frozen=True)
class KernelRecipe:
    """A kernel by its name and its fields as plain values: big numbers in hexadecimal, a key share by its hash."""

    kernel: str
    values: tuple[tuple[str, str | int], ...] = field(repr=False)


@dataclass(frozen=True)
class Rows:
    """Some rows of a block."""

    width: int
    data: bytes = field(repr=False)

    @classmethod
    def of(cls, block: Block) -> "Rows":
        return cls(block.shape[1], block.tobytes())

    @property
    def block(self) -> Block:
        return from_bytes(self.data, self.width)

    def __sizeof__(self) -> int:
        return object.__sizeof__(self) + len(self.data)  # by which Dask judges what to keep in memory


@dataclass(frozen=True)
class Piece:
    """The work that one worker does at a time."""

    recipe: KernelRecipe
    rows: tuple[Rows, ...]


def recipe_of(kernel: Kernel) -> KernelRecipe | None:
    """How a worker makes this kernel; None for one that workers do not know."""
    if type(kernel) is PartialDecrypt:
        values = (("share", share_name(kernel.exponent)), ("modulus", hex(kernel.modulus)))
        return KernelRecipe("PartialDecrypt", (*values, ("constant_time", kernel.constant_time)))
    if type(kernel) is FixedBasePower:
        return KernelRecipe("FixedBasePower", _values(kernel.fixed))
    name = type(kernel).__name__
    return KernelRecipe(name, _values(kernel)) if _PLAIN.get(name) is type(kernel) else None


def run_piece(piece: Piece) -> Rows:
    return run_rows(piece.recipe, *piece.rows)


def run_rows(recipe: KernelRecipe, *rows: Rows) -> Rows:
    """On a worker: the kernel over rows that may be results of other pieces."""
    release_lock_while_computing()
    return Rows.of(_kernel(recipe).run(*(part.block for part in rows)))


def _values(of: Any) -> tuple[tuple[str, str | int], ...]:  # noqa: ANN401 -- any dataclass of numbers
    pairs = [(one.name, getattr(of, one.name)) for one in fields(of)]
    return tuple((name, hex(value) if isinstance(value, mpz) else value) for name, value in pairs)


def _numbers(recipe: KernelRecipe) -> dict[str, Any]:
    return {name: mpz(int(value, 16)) if isinstance(value, str) else value for name, value in recipe.values}


def _kernel(recipe: KernelRecipe) -> Kernel:
    if recipe.kernel != "PartialDecrypt":
        return _cached(recipe)
    # Never cached: a share is kept by `KeyFolder` alone, which forgets a deleted key.
    values = dict(recipe.values)
    share = own_keys().share(str(values["share"]))
    return PartialDecrypt(share, mpz(int(str(values["modulus"]), 16)), bool(values["constant_time"]))


@lru_cache(maxsize=64)
def _cached(recipe: KernelRecipe) -> Kernel:
    """Cached because a fixed base builds a table."""
    if recipe.kernel == "FixedBasePower":
        return FixedBasePower(FixedBase(**_numbers(recipe)))
    kernel: Kernel = _PLAIN[recipe.kernel](**_numbers(recipe))
    return kernel
