"""Write what follows from the tables of steps: their section of docs/formats.md, and the limits of the page for phones.

Run `python tools/steps.py` after a change of a table. A test says when a file is stale.
"""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from crowdfl.protocols import claim_steps as claims
from crowdfl.protocols.hardened import steps as hardened
from crowdfl.protocols.messages import LONGEST_NUMBER
from crowdfl.protocols.paper import steps as paper
from crowdfl.protocols.shares.round import steps as shares
from crowdfl.protocols.shares.round.csp_records import MOST_UNSHOWN
from crowdfl.protocols.steps import FieldForm, Size, StepForm
from crowdfl.settings import MOST_DEVICES

ROOT = Path(__file__).parent.parent
FORMATS, LIMITS = "docs/formats.md", "src/crowdfl/web/phone/protocol/limits.js"
BEGIN, END = "<!-- Written by tools/steps.py. -->\n", "<!-- Up to here. -->\n"
PHONE = {
    "publication": shares.PUBLICATION,
    "record": shares.RECORD,
    "end": shares.END,
    "envelope": shares.ENVELOPE,
    "bonus": shares.BONUS_WORD,
    "bonusEnvelope": shares.BONUS_ENVELOPE,
    "placeKept": claims.PLACE.reply,
    "upload": shares.UPLOAD,
}
QUANTITIES = (
    shares.PARAMETERS,
    shares.RING,
    shares.COUNT,
    shares.LEAVES,
    shares.PEOPLE,
    shares.ENROLLED,
    shares.REWARD,
    shares.AUDIENCES,
)
CONSTANTS = ("SEED_BYTES", "HASH_BYTES", "SALT_BYTES", "MASK_BYTES", "SAMPLES_BYTES", "ROUND_BYTES")
MOST = {"MOST_UNSHOWN": MOST_UNSHOWN, "MOST_DEVICES": MOST_DEVICES, "LONGEST_NUMBER": LONGEST_NUMBER}
"""What a phone counts up to."""


def quantities(module: Any) -> list[Size[Any]]:  # noqa: ANN401 -- a table's module
    """The named ones, in the order of the module."""
    return [value for value in vars(module).values() if isinstance(value, Size) and value.words]


def table(title: str, module: Any) -> str:  # noqa: ANN401
    """What the sizes are made of, then the steps."""
    named = [f"- `{one.text}`: {one.words}\n" for one in quantities(module)]
    rows = [row(step) for step in (*module.STEPS, *getattr(module, "BESIDE", ()))]
    head = "| step | when | SP sends | CSP answers | bound to | the answer shows |\n|---|---|---|---|---|---|\n"
    return f"### {title}\n\n{''.join(named)}\n{head}{''.join(rows)}"


def row(step: StepForm[Any]) -> str:
    """One step."""
    kinds = [f"kind {kind}: " if kind else "" for kind in (step.kind, step.answer)]
    answer = "the same" if step.reply == step.request else kinds[1] + said(step.reply)
    cells = [
        step.name,
        step.when.words,
        kinds[0] + said(step.request),
        answer,
        step.bound_to,
        step.shows,
    ]
    return f"| {' | '.join(cells)} |\n"


def said(parts: Sequence[FieldForm[Any]]) -> str:
    """The fields, each with its size."""
    return "; ".join(map(part_said, parts)) or "nothing"


def part_said(part: FieldForm[Any]) -> str:
    """One field: its name, how many entries it has, the bytes of each, and what it is."""
    words = f" ({part.words})" if part.words else ""
    if part.is_message:
        return f"{part.name}: a {part.words}"
    size = ("" if part.each.exact else "at most ") + f"`{part.each.text}`"
    if part.count is None:
        return f"{part.name}: {size}{words}"
    count = ("" if part.count.exact else "at most ") + f"`{part.count.text}`"
    return f"{part.name}: {count} of {size}{words}"


def formats_page() -> str:
    """docs/formats.md, with the tables of now between the marks."""
    page = (ROOT / FORMATS).read_text(encoding="utf-8")
    intro = "Sizes are bytes. A list or a vector of `n` entries of `s` bytes is written as `n` of `s`.\n"
    tables = [
        table("Steps of `shares`", shares),
        table("Steps of `hardened`", hardened),
        table("Steps of `paper`", paper),
        table("Claims of `shares` and `hardened`", claims),
    ]
    block = BEGIN + "\n" + intro + "\n" + "\n".join(tables) + "\n" + END
    made, count = re.subn(re.escape(BEGIN) + ".*?" + re.escape(END), lambda _: block, page, flags=re.DOTALL)
    if count != 1:
        raise SystemExit(f"{FORMATS} has no place for the steps, or two: it stands between {BEGIN!r} and {END!r}")
    return made


def limits_script() -> str:
    """What a phone reads by: lengths, and the limits of messages."""
    constants = "".join(f"export const {name} = {getattr(shares, name)};\n" for name in CONSTANTS)
    constants += "".join(f"export const {name} = {value};\n" for name, value in MOST.items())
    properties = "".join(
        f" * @property {{number}} {one.text} {one.words[0].upper()}{one.words[1:]}.\n" for one in QUANTITIES
    )
    arguments = ", ".join(one.text for one in QUANTITIES)
    rows = "".join(
        f"    {name}: {{ field: {most(fields(parts))}, entries: {most(entries(parts))} }},\n"
        for name, parts in PHONE.items()
    )
    return f"""// Lengths, limits of messages and of counts, as Python declares them. Written by tools/steps.py.

/** @typedef {{{{ field: number, entries: number }}}} Limit Bytes that a field may have, and entries of a list. */
/**
 * @typedef {{object}} Sizes What limits follow from.
{properties} */

{constants}
/**
 * Bytes that a field of a message may have, and entries of a list in it.
 * @param {{Sizes}} sizes @returns {{Record<"{'" | "'.join(PHONE)}", Limit>}}
 */
export function limitsFor({{ {arguments} }}) {{
  return {{
{rows}  }};
}}
"""


def fields(parts: Iterable[FieldForm[Any]]) -> list[str]:
    return [part.field.text for part in parts]


def entries(parts: Iterable[FieldForm[Any]]) -> list[str]:
    return [part.count.text for part in parts if part.count is not None] or ["0"]


def most(texts: Iterable[str]) -> str:
    """The largest of some sizes, in JavaScript; each is written once, and of the plain numbers the largest."""
    unique = dict.fromkeys(texts)
    plain = [int(text) for text in unique if text.isdigit()]
    rest = [text for text in unique if not text.isdigit()]
    both = [*rest, *([str(max(plain))] if plain else [])]
    return both[0] if len(both) == 1 else f"Math.max({', '.join(both)})"


PAGES = {FORMATS: formats_page, LIMITS: limits_script}

if __name__ == "__main__":
    for path, made in PAGES.items():
        (ROOT / path).write_text(made(), encoding="utf-8")
