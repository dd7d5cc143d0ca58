"""Puts the pictures that the documents show into docs/img, from a folder of those that the tests of pages have taken.

python tools/pictures.py FOLDER
"""

import sys
from pathlib import Path

from PIL import Image

SHOWN = {
    "console-task-wide": "console-task-en-light",
    "console-tasks-narrow": "console-tasks-en-dark",
    "console-tasks-wide": "console-tasks-en-light",
    "phone-invitation": "phone-invitation-en-light",
    "phone-leave": "phone-leave-en-light",
    "phone-recording": "phone-recording",
    "phone-rewards": "phone-earnings-en-light",
    "phone-training": "phone-training-en-light",
    "requester-create": "requester-plan-en-light",
    "requester-sheet": "requester-sheet-en-light",
    "requester-task": "requester-task-en-light",
    "requester-tasks": "requester-tasks-en-light",
}
CUT = {"requester-sheet": 900, "requester-task": 1400}  # pixels from the top; of the others all


def main(folder: Path) -> None:
    target = Path(__file__).parent.parent / "docs" / "img"
    for name, taken in SHOWN.items():
        with Image.open(folder / f"{taken}.png") as found:
            whole = found.convert("RGB")
        shown = whole.crop((0, 0, whole.width, CUT.get(name, whole.height)))
        few = shown.quantize(40, dither=Image.Dither.NONE)  # colours are enough for a page
        few.save(target / f"{name}.png", optimize=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
