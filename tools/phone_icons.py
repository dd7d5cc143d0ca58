"""Draws the icons of the phone's page: three phones whose lines meet in one model. Run it after a change of the drawing."""

from pathlib import Path

from PIL import Image, ImageDraw

ICONS = Path(__file__).parents[1] / "src/crowdfl/web/phone/icons"
_GROUND, _LINE, _MODEL = "#0b5d66", "#ffffff", "#9fe0e5"
_FINE = 4  # drawn larger, then scaled down: smooth edges
_PHONES = ((0.24, 0.26), (0.5, 0.17), (0.76, 0.26))
_MEETING = (0.5, 0.68)


def icon(side: int, *, maskable: bool) -> Image.Image:
    """A maskable icon fills the square, with its drawing inside the circle that every platform keeps."""
    size = side * _FINE
    image = Image.new("RGBA", (size, size), _GROUND if maskable else (0, 0, 0, 0))
    draw = ImageDraw.Draw(image)
    if not maskable:
        draw.rounded_rectangle((0, 0, size - 1, size - 1), radius=size // 5, fill=_GROUND)
    _draw(draw, size, 0.72 if maskable else 0.92)
    return image.resize((side, side), Image.Resampling.LANCZOS)


def _draw(draw: ImageDraw.ImageDraw, size: int, scale: float) -> None:
    def at(x: float, y: float) -> tuple[float, float]:
        return ((x - 0.5) * scale + 0.5) * size, ((y - 0.46) * scale + 0.5) * size

    unit = scale * size
    for x, y in _PHONES:
        draw.line((at(x, y), at(*_MEETING)), fill=_LINE, width=round(unit * 0.035))
    for x, y in _PHONES:
        _phone(draw, *at(x, y), unit)
    x, y = at(*_MEETING)
    for radius, colour in ((0.16, _LINE), (0.115, _MODEL)):
        draw.ellipse((x - radius * unit, y - radius * unit, x + radius * unit, y + radius * unit), fill=colour)


def _phone(draw: ImageDraw.ImageDraw, x: float, y: float, unit: float) -> None:
    wide, high = 0.075 * unit, 0.125 * unit
    draw.rounded_rectangle((x - wide, y - high, x + wide, y + high), radius=0.03 * unit, fill=_LINE)
    inner = 0.02 * unit
    draw.rectangle((x - wide + inner, y - high + 2 * inner, x + wide - inner, y + high - 2 * inner), fill=_GROUND)


def main() -> None:
    """Write all icons."""
    for name, side, maskable in (("icon-192", 192, False), ("icon-512", 512, False), ("maskable-512", 512, True)):
        icon(side, maskable=maskable).quantize(32).save(ICONS / f"{name}.png", optimize=True)


if __name__ == "__main__":
    main()
