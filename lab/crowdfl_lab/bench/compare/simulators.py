"""`crowdfl.simulate` beside other simulators: processor time of a person and round, beside the user's own training.

Each simulates the same crowd with the same NumPy task, in a process of its own. The first round, in which programs start, does
not count. The others average in the clear: nothing is checked, and nothing is shared between two servers.
"""

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

import crowdfl
from crowdfl_lab.bench.compare.simulator_peers import step_of
from crowdfl_lab.bench.compare.systems import PeerUnavailable, SimulatedCrowd, ask_script
from crowdfl_lab.report.results import Figure, Reference, ResultTable, Row, Target

_SCRIPT = Path(__file__).with_name("simulator_peers.py")
_OWN = {"crowd": "CrowdFL, a crowd", "roles": "CrowdFL, every role"}
SIMULATORS = {"pfl": "pfl, plain averaging", "flower": "Flower's simulation, plain averaging"}
_NOT_INSTALLED = {"pfl": "not installed: make pfl", "flower": "not installed: make peers"}
_EXPECTED = {"version", "each", "training", "off"}
_MOST_ROLES = 36  # people of a round that every role plays: it grows with them as it is
_EXACT = 1e-6


@dataclass(frozen=True)
class Simulator:
    """One simulator's figures, by the parameters of a crowd; or why there are none."""

    key: str
    name: str
    version: str
    each: Mapping[int, Figure]
    missing: str = ""


def own_run(engine: str, crowd: SimulatedCrowd) -> dict[str, Any]:
    """As the peers' script measures others, in this process."""
    step, spent, ends = step_of(crowd.parameters), [0.0], list[tuple[float, float]]()

    def train(model: Any, _data: Any) -> Any:  # noqa: ANN401 -- as users write it
        start = time.process_time()
        trained = model + step
        spent[0] += time.process_time() - start
        return trained, 10

    result = crowdfl.simulate(
        train,
        None,
        lambda _name: None,
        people=crowd.people,
        per_round=crowd.drawn,
        rounds=crowd.rounds,
        initial=np.zeros(crowd.parameters),
        engine="roles" if engine == "roles" else "crowd",
        on_round=lambda _done: ends.append((time.process_time(), spent[0])),
        progress=False,
    )
    (first, trained_first), (last, trained_last) = ends[0], ends[-1]
    count = crowd.drawn * (len(ends) - 1)
    trained = trained_last - trained_first
    off = float(np.abs(result.model - crowd.rounds * step).max())
    each = (last - first - trained) / count
    return {"version": version("crowdfl"), "each": each, "training": trained / count, "off": off}


def _fewer(crowd: SimulatedCrowd) -> SimulatedCrowd:
    drawn = min(crowd.drawn, _MOST_ROLES)
    return SimulatedCrowd(crowd.parameters, drawn + 1, drawn, crowd.rounds, crowd.most)


def measured(key: str, python: Path, crowds: Sequence[SimulatedCrowd]) -> Simulator:
    """Over all sizes; a peer that fails says why."""
    own = key in _OWN
    name = (_OWN | SIMULATORS)[key]
    each, versions = dict[int, Figure](), set[str]()
    for crowd in crowds:
        size = _fewer(crowd) if key == "roles" else crowd
        numbers = {part: getattr(size, part) for part in ("parameters", "people", "drawn", "rounds")}
        options = [f"--{part}={number}" for part, number in numbers.items()]
        script = [str(Path(__file__)), key] if own else [str(_SCRIPT), key]
        try:
            found = ask_script(
                Path(sys.executable) if own else python, script + options, _EXPECTED, _NOT_INSTALLED.get(key, "")
            )
        except PeerUnavailable as why:
            return Simulator(key, name, "", {}, str(why))
        if not found["off"] < _EXACT:
            return Simulator(key, name, found["version"], {}, f"its model is off by {found['off']:.2g}")
        each[crowd.parameters] = Figure(found["each"], "s")
        versions.add(found["version"])
    return Simulator(key, name, ", ".join(sorted(versions)), each)


def measure_simulators(pythons: Mapping[str, Path], crowds: Sequence[SimulatedCrowd]) -> Iterator[Simulator]:
    for key in (*_OWN, *SIMULATORS):
        yield measured(key, pythons.get(key, Path(sys.executable)), crowds)


def simulator_table(found: Sequence[Simulator], crowds: Sequence[SimulatedCrowd]) -> ResultTable:
    rows = tuple(
        (one.name, one.version, *((one.missing.rpartition("\n")[2],) if one.missing else ()), *one.each.values())
        + (None,) * (len(crowds) - max(len(one.each), bool(one.missing)))
        for one in found
    )
    note = f"processor time beside training; every role with at most {_MOST_ROLES} people in a round"
    columns = "simulator", "version", *(crowd.title for crowd in crowds)
    return ResultTable("Simulation, each person and round", columns, rows, note)


def simulator_rows(found: Sequence[Simulator], crowds: Sequence[SimulatedCrowd]) -> Iterator[Row]:
    """A target for each size; beside it what the others take."""
    known = {one.key: one for one in found}
    for crowd in crowds if known["crowd"].each else ():
        number = crowd.parameters
        target = Target(f"at most {Figure(crowd.most, 's')}", "crowdfl", at_most=crowd.most)
        row = Row(
            f"simulate_{number}", "simulate, a person and round", known["crowd"].each[number], target, note=crowd.title
        )
        others = [Reference(one.name, one.each.get(number), one.missing) for one in found if one.key != "crowd"]
        yield row.over(others[0], "crowd / every role", *others[1:])


def main() -> None:
    """`python simulators.py ENGINE --parameters=...`: one JSON object, as the peers' script prints it."""
    import argparse
    import json

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("engine", choices=tuple(_OWN))
    for name in ("parameters", "people", "drawn", "rounds"):
        parser.add_argument(f"--{name}", type=int)
    options = parser.parse_args()
    crowd = SimulatedCrowd(options.parameters, options.people, options.drawn, options.rounds, 0.0)
    sys.stdout.write(json.dumps(own_run(options.engine, crowd)))


if __name__ == "__main__":
    main()
