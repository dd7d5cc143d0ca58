"""QR codes of links: drawn here, since a service that draws them would see the link."""

import io

import segno

_LIGHT_ON_DARK, _USUAL = "\x1b[97;40m", "\x1b[0m"


def qr_svg(link: str) -> bytes:
    """For a page or a printer, with the quiet zone that scanners need."""
    out = io.BytesIO()
    _code(link).save(out, kind="svg", scale=4, border=4, light="white", title="Open this with your phone's camera")
    return out.getvalue()


def qr_terminal(link: str) -> str:
    """For a terminal: two modules in a letter, and colours of its own, so that a light terminal does not invert it."""
    out = io.StringIO()
    _code(link).terminal(out, border=2, compact=True)
    return "\n".join(f"{_LIGHT_ON_DARK}{line}{_USUAL}" for line in out.getvalue().splitlines())


def _code(link: str) -> segno.QRCode:
    """The least error correction: a screen is not scratched, and larger modules are easier to read.

    Links look random, so that no mask is better than another: trying them all took most of a sheet's time."""
    return segno.make(link, error="l", mask=0, micro=False, boost_error=False)
