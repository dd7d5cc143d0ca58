"""`crowdfl demo`: a model encrypted by several people, summed blind, opened by two share holders together."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Annotated

import numpy as np
import numpy.typing as npt
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from crowdfl.crypto import pctd, vector
from crowdfl.crypto.budget import WidthBudget
from crowdfl.crypto.compute import Watch
from crowdfl.crypto.randomizers import FreshRandomizers

__all__ = ["demo"]

_SAMPLES = 100


@dataclass
class _Steps:
    """What was done, how long it took, what it handled: a progress bar while it runs, a table row after."""

    progress: Progress
    rows: list[tuple[str, str, str, float]] = field(default_factory=list)

    @contextmanager
    def step(self, who: str, what: str, handled: str) -> Iterator[Watch]:
        task = self.progress.add_task(f"{who}: {what}", total=None)
        start = time.perf_counter()
        yield Watch(lambda done, total: self.progress.update(task, completed=done, total=total))
        elapsed = time.perf_counter() - start
        self.progress.remove_task(task)
        self.rows.append((who, what, handled, elapsed))


def demo(
    parameters: Annotated[int, typer.Option(min=1, help="Size of the model.")] = 10_000,
    participants: Annotated[int, typer.Option(min=1, max=36, help="How many people contribute a model.")] = 5,
) -> None:
    """Encrypt, sum and open a model, with a fresh 2048-bit key."""
    console = Console()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        steps = _Steps(progress)
        budget, public, error = _run(steps, parameters, participants)
    console.print(_table(steps, budget, public, participants))
    unit = 10.0**-budget.decimals
    console.print(
        f"The opened average differs from the plain one by at most {error:.1e} (one unit is {unit:.0e}).\n"
        "Neither share opens anything alone; the sum was computed on ciphertexts."
    )
    if error > unit:
        raise typer.Exit(1)


def _run(steps: _Steps, parameters: int, participants: int) -> tuple[WidthBudget, pctd.PublicKey, float]:
    with steps.step("KGC", "make the key, split it in two", "2048-bit N"):
        keys = pctd.keygen()
        share_sp, share_csp = keys.private.split()
    budget = WidthBudget(keys.public.bits, parameters, max_participants=36, max_samples=_SAMPLES)
    packing = budget.packing(keys.public)
    randomizers = FreshRandomizers(keys.public)
    models, samples = _models(parameters, participants)
    total = vector.RunningProduct(keys.public, budget.ciphertexts, budget.max_participants)

    for number, (model, count) in enumerate(zip(models, samples, strict=True), start=1):
        with steps.step(f"participant {number}", "encrypt the model", f"{budget.ciphertexts} ciphertexts") as watch:
            weighted = budget.weigh(budget.encoding.encode(model).values, count)
            upload = vector.encrypt(randomizers, packing.pack(weighted), watch=watch).to_bytes()
        with steps.step("SP", f"check and add upload {number}", f"{len(upload) / 1e6:.2f} MB") as watch:
            received = vector.CipherVector.from_bytes(upload, keys.public, max_count=budget.ciphertexts)
            total.add(received, watch=watch)
    summed = total.result()
    with steps.step("SP", "decrypt with its share", f"{len(summed)} powers") as watch:
        part_sp = summed.partial_decrypt(share_sp, watch=watch)
    with steps.step("CSP", "decrypt with its share", f"{len(summed)} powers") as watch:
        part_csp = summed.partial_decrypt(share_csp, watch=watch)
    with steps.step("both", "combine and unpack", f"{parameters} sums"):
        sums = budget.check_sum(packing.unpack(vector.combine(part_sp, part_csp), parameters))
    average = budget.encoding.decode(sums, sum(samples))
    plain = np.average(models, axis=0, weights=samples)
    return budget, keys.public, float(np.max(np.abs(average - plain)))


def _models(parameters: int, participants: int) -> tuple[npt.NDArray[np.float64], list[int]]:
    """Made-up models around a common one, and how many samples each was trained on: the demo's data, not secrets."""
    draw = np.random.default_rng(2021)
    common = draw.normal(0, 0.5, parameters)
    models = common + draw.normal(0, 0.05, (participants, parameters))
    return models, [int(count) for count in draw.integers(20, _SAMPLES + 1, participants)]


def _table(steps: _Steps, budget: WidthBudget, public: pctd.PublicKey, participants: int) -> Table:
    table = Table(
        title=f"{budget.parameters:,} parameters, {participants} participants, {public!r}\n"
        f"{budget.slots} values of {budget.slot_bits} bits in each ciphertext"
    )
    for heading in ("who", "what", "handled"):
        table.add_column(heading)
    table.add_column("seconds", justify="right")
    for who, what, handled, elapsed in steps.rows:
        table.add_row(who, what, handled, f"{elapsed:.2f}")
    return table
