"""QR codes of links: drawn here, since a service that draws them would see the link.

A sheet has a thousand of them, for which segno takes minutes: each is filled in here, into what segno draws of an empty one.
"""

import io
from functools import cache
from itertools import cycle, islice, zip_longest

import numpy as np
import numpy.typing as npt
import segno
from segno import consts, encoder

_LIGHT_ON_DARK, _USUAL = "\x1b[97;40m", "\x1b[0m"
_Bytes = npt.NDArray[np.uint8]
_BORDER, _SCALE = 4, 4  # the quiet zone that scanners need, and pixels of a module, where nobody says how large
_LEVEL = consts.ERROR_LEVEL_L  # the least: a screen is not scratched, and larger modules are easier to read
_MASK = 0  # of those that scanners take, the first; links look random, so that no other is better
_FIRST = 10  # the least version: from here on a length has two bytes


def qr_svg(link: str) -> bytes:
    """For a page or a printer."""
    modules = _modules(link.encode())
    edges = np.diff(np.pad(modules, ((0, 0), (1, 1))).astype(np.int8), axis=1)
    (rows, starts), ends = np.nonzero(edges > 0), np.nonzero(edges < 0)[1]
    runs = zip((starts + _BORDER).tolist(), (rows + _BORDER).tolist(), (ends - starts).tolist(), strict=True)
    path, size = "".join(f"M{x} {y}.5h{width}" for x, y, width in runs), len(modules) + 2 * _BORDER
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_SCALE * size}" height="{_SCALE * size}" '
        f'viewBox="0 0 {size} {size}"><title>Open this with your phone\'s camera</title>'
        f'<path fill="#fff" d="M0 0h{size}v{size}H0z"/><path stroke="#000" d="{path}"/></svg>'
    ).encode()


def qr_terminal(link: str) -> str:
    """For a terminal: two modules in a letter, and colours of its own, so that a light terminal does not invert it."""
    out = io.StringIO()
    _code(link, None).terminal(out, border=2, compact=True)
    return "\n".join(f"{_LIGHT_ON_DARK}{line}{_USUAL}" for line in out.getvalue().splitlines())


def _code(contents: str, version: int | None) -> segno.QRCode:
    return segno.make(contents, error="l", version=version, mask=_MASK, micro=False, boost_error=False)


def _modules(link: bytes) -> _Bytes:
    """Dark ones are 1: data, then checks, each spread over the blocks of the code, as ISO 18004 has them."""
    version = next(one for one in range(_FIRST, 41) if consts.SYMBOL_CAPACITY[one][_LEVEL] >= 8 * (len(link) + 3))
    head = bytes.fromhex(f"4{len(link):04x}{link.hex()}0")  # bytes, so many of them, and the end
    data = np.frombuffer(head + bytes(islice(cycle(b"\xec\x11"), _capacity(version) - len(head))), np.uint8)
    blocks, checks = list[list[int]](), list[list[int]]()
    for group in consts.ECC[version][_LEVEL]:
        for _ in range(group.num_blocks):
            block, data = data[: group.num_data], data[group.num_data :]
            of_block = _times()[block[:, None], _remainders(group.num_data, group.num_total - group.num_data)]
            blocks.append(block.tolist())
            checks.append(np.bitwise_xor.reduce(of_block, axis=0).tolist())
    spread = [one for some in (blocks, checks) for column in zip_longest(*some) for one in column if one is not None]
    empty, rows, columns = _layout(version)
    bits = np.zeros(len(rows), np.uint8)
    bits[: 8 * len(spread)] = np.unpackbits(np.array(spread, np.uint8))
    filled = empty.copy()
    filled[rows, columns] = bits ^ ((rows + columns) % 2 == 0)
    return filled


def _capacity(version: int) -> int:
    return int(consts.SYMBOL_CAPACITY[version][_LEVEL]) // 8


@cache
def _layout(version: int) -> tuple[_Bytes, npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """A code as it is without its bits, and where these go: in columns of two modules from the right, up and down in turn."""
    code = _code("0", version)
    size = len(code.matrix)
    reserved = encoder.make_matrix(size, size)
    encoder.add_finder_patterns(reserved, size, size)
    encoder.add_alignment_patterns(reserved, size, size)
    places = [
        (row, column - side)
        for turn, column in enumerate([*range(size - 1, 6, -2), 5, 3, 1])
        for row in (range(size) if turn % 2 else reversed(range(size)))
        for side in (0, 1)
        if reserved[row][column - side] > 1
    ]
    rows, columns = np.array(places).T
    return np.array([list(row) for row in code.matrix], np.uint8), rows, columns


@cache
def _times() -> _Bytes:
    """Products in the field of 256 numbers."""
    powers, table = np.array(consts.GALIOS_EXP), np.zeros((256, 256), np.uint8)
    logs = np.array([0, *consts.GALIOS_LOG[1:]])
    table[1:, 1:] = powers[logs[1:, None] + logs[None, 1:]]
    return table


@cache
def _remainders(data: int, checks: int) -> _Bytes:
    """What each byte of a block adds to its checks."""
    by = np.array(consts.GALIOS_EXP, np.uint8)[list(consts.GEN_POLY[checks])]
    found = [by]
    for _ in range(data - 1):
        last = found[-1]
        found.append(np.append(last[1:], np.uint8(0)) ^ _times()[last[0], by])
    return np.array(found[::-1])
