"""Writes learning.json beside this file: what the Python package makes of fixed data, for a learner in another language.

Unlike the other vectors these are an echo of CrowdFL and of NumPy: a phone must compute what a Python participant
would. Inputs are decimals of few digits, so that every language reads the same numbers.
"""

import json
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from crowdfl.errors import CrowdFLError
from crowdfl.learning.datasets.csv_files import CsvFolder, label_of_name, read_table
from crowdfl.learning.datasets.data import Person, recordings_of, split_recordings
from crowdfl.learning.features import features, scaled
from crowdfl.learning.models.learner import Training
from crowdfl.learning.recipe import Recipe

__all__ = ["documents", "main"]

Json: TypeAlias = "str | int | float | bool | list[Json] | dict[str, Json] | None"
Floats = npt.NDArray[np.floating[Any]]

TOLERANCE = 2e-6  # of each float: the last digits of a logarithm or of torch's sums differ between processors
SEEDS = (0, 1, 5, 2**32 + 1, 2**63 - 1)


def numbers(values: npt.ArrayLike, decimals: int) -> list[Json]:
    """A flat list, rounded."""
    flat = np.asarray(values, dtype=np.float64).reshape(-1)
    return [int(value) if decimals == 0 else round(value, decimals) + 0.0 for value in flat.tolist()]


def generator(label: str) -> np.random.Generator:
    return np.random.default_rng(list(label.encode()))


def drawn(label: str, *shape: int, scale: float = 1.0, decimals: int = 3) -> Floats:
    """Fixed numbers of few digits."""
    return np.asarray(np.round(generator(label).normal(0, scale, shape), decimals) + 0.0)


def permutations() -> list[Json]:
    """The first and the second order that a generator gives, as two epochs use them."""
    cases: list[Json] = []
    for seed, count in [(seed, count) for seed in SEEDS for count in (1, 2, 7, 100)] + [(5, 1000), (2**63 - 1, 1000)]:
        random = np.random.default_rng(seed)
        orders: list[Json] = [random.permutation(count).tolist() for _ in range(2)]
        cases.append({"seed": str(seed), "n": count, "orders": orders})
    return cases


def seeds() -> list[Json]:
    wanted = [(0, 1, "watch-03"), (7, 12, "a"), (2**63 - 1, 1000, "Zoë/ß 走"), (3, 0, "")]
    return [
        {"seed": str(seed), "round": number, "name": name, "is": Training(seed=seed).at(number, name).seed}
        for seed, number, name in wanted
    ]


ALONE: dict[str, Json] = {
    "id": "company",
    "text": "Were you alone?",
    "choices": ["alone", "with others"],
    "use": "feature",
}
MOOD: dict[str, Json] = {"id": "mood", "text": "How did you feel?", "choices": ["well", "so so", "bad"]}
LABEL: dict[str, Json] = {"id": "what", "text": "What was it?", "choices": ["a", "b"], "use": "label"}
GOOD: tuple[dict[str, Json], ...] = (
    {"labels": ["a", "b"], "sensors": ["loudness", "speed"], "questions": [ALONE, LABEL, MOOD], "learner": "softmax"},
    {"labels": ["a", "b"], "sensors": ["speed"], "features": "spectral", "window_samples": 20, "channels": 3},
    {"labels": ["a", "b"]},
    {
        "labels": ["a"],
        "window_samples": 90,
        "channels": 3,
        "features": "flat",
        "layers": [1000],
        "hertz": 20,
        "batch": 50,
    },
    {"labels": ["a", "b", "c"], "learner": "softmax", "window_samples": 7, "step": 3, "held_out": 0.4, "seed": 9},
    {"labels": ["x", "y"], "layers": ["linear 8", "tanh", 5], "standardise": True},
    {"labels": ["x", "y"], "layers": [], "epochs": 0, "rate": 1, "step": None, "window_samples": 3},
    {"labels": ["x", "y"], "learner": "softmax", "layers": ["conv 3 3"]},
    {
        "labels": ["x", "y"],
        "features": "spectral",
        "scale_inputs": True,
        "window_samples": 90,
        "channels": 3,
        "proximal": 0.1,
    },
    {"labels": ["x", "y"], "features": "spectral", "window_samples": 25, "learner": "softmax", "proximal": 1},
    {"labels": ["x", "y"], "features": "spectral", "window_samples": 1, "target": "label", "loss": None, "proximal": 0},
)
BAD: tuple[dict[str, Json], ...] = (
    {},
    {"labels": []},
    {"labels": ["a", "a"]},
    {"labels": "fast"},
    {"labels": ["a", 1]},
    {"learner": "forest"},
    {"features": ["flat"]},
    {"features": "spectrum"},
    {"epochs": "many"},
    {"epochs": 1.5},
    {"epochs": 10_001},
    {"epochs": -1},
    {"batch": True},
    {"batch": 0},
    {"batch": None},
    {"seed": -1},
    {"seed": 2**70},
    {"layers": 32},
    {"layers": [True]},
    {"layers": [0]},
    {"layers": [-3]},
    {"layers": [10**8]},
    {"layers": [10**9]},
    {"layers": [1.5]},
    {"layers": [None]},
    {"layers": ["tanh", "linear 3"]},
    {"layers": ["linear 4", "swish"]},
    {"layers": ["linear 4 4", "relu"]},
    {"sensors": ["smell"]},
    {"sensors": ["speed", "speed"]},
    {"sensors": "speed"},
    {"sensors": ["speed"], "features": "flat"},
    {"questions": [ALONE], "features": "windows", "learner": "mine:Net"},
    {"questions": [ALONE, ALONE]},
    {"questions": [ALONE | {"id": "With spaces"}]},
    {"questions": [ALONE | {"choices": ["one"]}]},
    {"questions": [ALONE | {"choices": ["one", "one"]}]},
    {"questions": [ALONE | {"choices": ["one", ""]}]},
    {"questions": [ALONE | {"text": ""}]},
    {"questions": [ALONE | {"use": "both"}]},
    {"questions": [ALONE | {"more": 1}]},
    {"questions": [LABEL, LABEL | {"id": "other"}]},
    {"questions": [LABEL | {"choices": ["b", "a"]}]},
    {"questions": [ALONE, MOOD, ALONE | {"id": "c"}, ALONE | {"id": "d"}]},
    {"questions": {}},
    {"channels": 0},
    {"window_samples": 0},
    {"window_samples": 10_001},
    {"step": 0},
    {"step": "a"},
    {"held_out": 0},
    {"held_out": 1},
    {"held_out": "half"},
    {"hertz": 0},
    {"hertz": None},
    {"rate": -1},
    {"rate": 2**64},
    {"rate": True},
    {"standardise": "yes"},
    {"standardise": 1},
    {"learner": 3},
    {"learner": "own"},
    {"features": "windowed", "scale_inputs": "yes"},
    {"scale_inputs": 1},
    {"learner": "numpy functions"},
    {"target": "number"},
    {"target": "value", "learner": "softmax"},
    {"loss": "squared"},
    {"loss": "cubed"},
    {"loss": 2},
    {"loss": "a.b:c d"},
    {"proximal": -1},
    {"proximal": "much"},
    {"proximal": True},
    {"proximal": 2**64},
    {"windows": 90},
    {"labels": "fast", "epochs": "many"},
    {"zeal": 1, "apt": 2},
)


def recipes() -> dict[str, Json]:
    good: list[Json] = []
    for training in GOOD:
        recipe = Recipe.of(training)
        cut, shape = recipe.cut, recipe.make_learner().shape
        good.append(
            {
                "training": dict(training),
                "cut": [cut.length, cut.step, cut.held_out, cut.gap, cut.hertz],
                "how": [recipe.epochs, recipe.batch, recipe.rate, str(recipe.seed)],
                "inputs": recipe.inputs,
                "shape": [[name, list(sides)] for name, sides in zip(shape.names, shape.shapes, strict=True)],
            }
        )
    bad: list[Json] = [refused({"labels": ["a", "b"], **change} if change else {}) for change in BAD]
    return {"good": good, "bad": bad}


def refused(training: dict[str, Json]) -> Json:
    try:
        Recipe.of(training).make_learner()
    except CrowdFLError as error:
        return {"training": training, "error": type(error).__name__, "message": str(error)}
    raise AssertionError(f"{training} was not refused")


def feature_cases() -> list[Json]:
    cases: list[Json] = []
    for count, length, channels in (
        (2, 100, 6),
        (2, 90, 3),
        (3, 7, 2),
        (2, 51, 1),
        (1, 2, 3),
        (1, 12, 3),
        (1, 13, 3),
        (1, 60, 2),
        (1, 61, 2),
    ):
        slow = 0.5 * np.sin(np.arange(length) / 7)[:, None] + np.linspace(-1, 1, channels)
        windows = np.round(drawn(f"windows {length}", count, length, channels, scale=0.2) + slow, 3).astype(np.float32)
        cases.append(feature_case(windows))
    still = np.full((1, 20, 3), 0.981, dtype=np.float32)
    return [*cases, feature_case(still), feature_case(np.zeros((1, 20, 3), dtype=np.float32))]


def feature_case(windows: npt.NDArray[np.float32]) -> Json:
    return {
        "shape": list(windows.shape),
        "windows": numbers(windows, 4),
        "motion": numbers(features("motion", windows), 7),
        "spectral": numbers(features("spectral", windows), 7),
    }


SCALED: tuple[tuple[str, int, tuple[int, int]], ...] = (
    ("motion", 12, (20, 3)),
    ("spectral", 9, (25, 2)),
    ("flat", 3, (4, 1)),
)


def scalings() -> list[Json]:
    """Inputs of a person's training windows, and of held-out ones; the last training number of "flat" never changes."""
    cases: list[Json] = []
    for name, count, shape in SCALED:
        own, other = (
            np.round(drawn(f"{side} {name}", count, *shape) + 0.3, 3).astype(np.float32) for side in ("own", "other")
        )
        if name == "flat":
            own[:, -1] = 0.5
        train, held_out = (features(name, windows) for windows in (own, other))
        cases.append(
            {
                "features": name,
                "shape": [count, *shape],
                "train": numbers(own, 3),
                "heldOut": numbers(other, 3),
                "scaled": [numbers(scaled(inputs, train), 7) for inputs in (train, held_out)],
            }
        )
    return cases


def stream(label: str, samples: int, hertz: float, channels: int = 3, jitter: float = 0.2) -> dict[str, Json]:
    """A recording with uneven times."""
    steps = (1 + jitter * generator(f"times {label}").uniform(-1, 1, samples)) / hertz
    times = np.round(1000 + np.cumsum(steps), 4)
    signal = np.round(
        np.sin(times[:, None] * np.arange(1, channels + 1)) + drawn(label, samples, channels, scale=0.1), 3
    )
    return {"times": numbers(times, 4), "signal": numbers(signal, 3), "channels": channels}


def with_gaps(recording: dict[str, Any]) -> dict[str, Json]:
    """The same with a pause, a step back in time and a time that repeats."""
    times = np.array(recording["times"])
    times[60:] += 30
    times[130:] -= 100
    times[20] = times[19]
    return recording | {"times": numbers(times, 4)}


SPLITS: tuple[tuple[str, dict[str, Json], tuple[tuple[str, dict[str, Json]], ...]], ...] = (
    (
        "same rate",
        {"window_samples": 10, "hertz": 20},
        (("WALK", stream("one", 120, 20)), ("sit", stream("two", 90, 20))),
    ),
    ("lower rate", {"window_samples": 8, "step": 4, "hertz": 10}, (("sit", stream("three", 200, 50)),)),
    ("a fifth", {"window_samples": 5, "step": 5, "hertz": 10}, (("sit", stream("four", 253, 50)),)),
    ("higher rate", {"window_samples": 16, "hertz": 50, "held_out": 0.5}, (("sit", stream("five", 60, 20)),)),
    ("gaps", {"window_samples": 10, "hertz": 20}, (("walk", with_gaps(stream("six", 200, 20))),)),
    (
        "standardised",
        {"window_samples": 9, "step": 7, "hertz": 20, "standardise": True},
        (("run", stream("seven", 80, 20)), ("walk", stream("eight", 90, 20)), ("sit", stream("nine", 90, 20))),
    ),
    (
        "six channels",
        {"window_samples": 20, "hertz": 25, "channels": 6, "held_out": 0.25, "features": "flat"},
        (("sit", stream("ten", 90, 25, 6)), ("walk", stream("eleven", 3, 25, 6))),
    ),
    (
        "one channel",
        {"window_samples": 12, "hertz": 20, "channels": 1, "standardise": True},
        (("sit", stream("thirteen", 150, 20, 1)),),
    ),
    (
        "sensors and answers beside motion",
        {
            "window_samples": 10,
            "hertz": 20,
            "sensors": ["speed", "loudness"],
            "questions": [ALONE, MOOD],
            "standardise": True,
        },
        (
            ("sit", stream("fourteen", 120, 20, 5) | {"answers": {"company": "alone", "mood": "bad"}}),
            ("walk", stream("fifteen", 100, 50, 5) | {"answers": {"mood": "well"}}),
        ),
    ),
    (
        "answers, and scaled inputs",
        {"window_samples": 12, "hertz": 20, "questions": [MOOD], "features": "spectral", "scale_inputs": True},
        (("sit", stream("sixteen", 150, 20) | {"answers": {"mood": "so so"}}), ("walk", stream("seventeen", 90, 20))),
    ),
    ("even", {"window_samples": 10, "step": 1, "hertz": 20}, (("sit", stream("twelve", 25, 20, jitter=0)),)),
)


def splits() -> list[Json]:
    return [split_case(*case) for case in SPLITS]


def split_case(name: str, change: dict[str, Json], given: tuple[tuple[str, dict[str, Any]], ...]) -> Json:
    training: dict[str, Json] = {"labels": ["Sit", "walk"], "channels": 3, "learner": "softmax", **change}
    recipe = Recipe.of(training)
    names = tuple(sorted({label for label, _ in given}))
    found = [
        recording
        for label, raw in given
        for recording in recordings_of(
            np.array(raw["times"]),
            with_answers(np.array(raw["signal"]).reshape(-1, raw["channels"]), raw.get("answers", {}), recipe),
            np.full(len(raw["times"]), names.index(label)),
            recipe.hertz,
        )
    ]
    split = recipe.adapt(split_recordings("p", found, names, recipe.cut))
    recordings: list[Json] = [{"label": label, **raw} for label, raw in given]
    train, held_out = recipe.both_inputs(split)
    sides: dict[str, Json] = {
        "train": side(split.train) | {"inputs": numbers(train, 7)},
        "heldOut": side(split.held_out) | {"inputs": numbers(held_out, 7)},
    }
    return {"name": name, "training": training, "recordings": recordings, **sides}


def with_answers(signal: Floats, answers: dict[str, str], recipe: Recipe) -> Floats:
    """A column for each choice, as a file's reader makes them."""
    chosen = [float(answers.get(name) == choice) for name, choices in recipe.beside for choice in choices]
    return np.append(signal, np.tile(chosen, (len(signal), 1)), axis=1)


def side(person: Person) -> dict[str, Json]:
    return {"windows": numbers(person.windows, 7), "labels": numbers(person.labels, 0)}


def lines(header: str, times: list[str], rest: str = "0.01,0.99,0.02", mark: str = ",") -> str:
    rows = [mark.join([time, *rest.split("|" if "|" in rest else ",")]) for time in times]
    return "\n".join([*([header] if header else []), *rows]) + "\n"


PACES = [f"{0.02 * i:.2f}" for i in range(12)]
BOTH: tuple[str, ...] = ("speed", "loudness")
FILES: tuple[tuple[str, str] | tuple[str, str, tuple[str, ...]], ...] = (
    ("drive.csv", lines("time,x,y,z,Speed (m/s),loudness (dB)", PACES, "0.1,0.2,0.9,12.5,-40"), BOTH),
    ("drive2.csv", lines("time,dbfs,gx,gy,gz,ax,ay,az,GPS speed (km/h)", PACES, "-20,2,4,6,0.1,0.2,0.9,36"), BOTH),
    ("drive3.csv", "time,x,y,z,speed\n0,0,0,1,3\n0.02,0,0,1,\n0.04,0,0,1,5\n0.06,0,0,1\n", ("speed",)),
    ("drive4.csv", lines("time,x,y,z,speed", PACES, "0.1,0.2,0.9,12.5"), BOTH),
    ("drive5.csv", lines("", PACES), ("loudness",)),
    ("walking_1.csv", lines("timestamp,x,y,z", PACES)),
    ("walking_2.csv", lines("Timestamp, X, Y, Z", [str(20 * i) for i in range(12)])),
    ("walking_3.csv", lines("time,ax,ay,az", [str(1_700_000_000_000 + 20 * i) for i in range(12)])),
    ("walking_4.csv", lines("time,x,y,z", [str(1_700_000_000_000_000_000 + 20_000_000 * i) for i in range(12)])),
    ("Walking (5).csv", lines("timestamp [us],accelerometer_x,accelerometer_y,accelerometer_z", ["0", "2e4", "40_000"])),
    ("walk.csv", lines("time_ms,acc_x,acc_y,acc_z,label", PACES, "0.1,0.9,0.1, Sitting ")),
    (
        "run.csv",
        lines("Time (s),Acceleration x (m/s^2),Acceleration y (m/s^2),Acceleration z (m/s^2)", PACES, "0.1,3.1,0.2"),
    ),
    ("run-2024-05-01.csv", lines("seconds_elapsed,z,y,x", PACES, "0.5,9.7,0.3")),
    (
        "turn.csv",
        lines(
            "time,gyro_x (deg/s),gyro_y (deg/s),gyro_z (deg/s),accel_z (g),accel_y (g),accel_x (g)",
            PACES,
            "10,20,-30,9,8,7",
        ),
    ),
    ("turn2.csv", lines("elapsed time,ax,ay,az,gx,gy,gz,activity", PACES, "0.1,0.2,0.9,1,2,3,Turn")),
    ("sit.csv", lines("Time (ms);X;Y;Z;label", ["0,0", "20,5", "40"], "0,25|-1,5e-1|.75|a, b", ";")),
    (
        "gehen.csv",
        lines(
            "Zeit (s);Lineare Beschleunigung x (m/s^2);Lineare Beschleunigung y (m/s^2);Lineare Beschleunigung z (m/s^2);"
            "Gyroskop x (rad/s);Gyroskop y (rad/s);Gyroskop z (rad/s)",
            ["0,00", "0,02", "0,04"],
            "0,5|9,7|-0,3|1|2|3",
            ";",
        ),
    ),
    ("toolbox.csv", lines("time,gFx,gFy,gFz,wx,wy,wz", PACES, "0.1,0.2,0.9,1,2,3")),
    ("sit.CSV", lines("t\tLinear Acceleration x\tLinear Acceleration y\tLinear Acceleration z", PACES, "1,5|2|3", "\t")),
    ("dates.csv", lines("time,x,y,z", [f"2024-05-01T10:22:{i:02}.{i:03}5Z" for i in range(5)])),
    ("zones.csv", lines("time,x,y,z", ["2024-05-01 12:00:00+02:00", "20240501T100001.25", "2024-W18-3T10:00:02,5-0030"])),
    ("days.csv", lines("time,x,y,z", ["2024-02-29", "2023-02-29", "2024-05-01T24:00", "2024-05-01T10", "0000-01-01"])),
    ("bare.csv", lines("", PACES)),
    ("bare5.csv", lines("", PACES, "0.1,0.2,0.9,Jog")),
    ("bare6.csv", lines("", PACES, "0.1,0.2,0.9,Jog,1")),
    ("faults.csv", "time,x,y,z\nsoon,0,0,1\n0\n\n0,0,0,1\n20,nan,0,1\n20,1e999,0,1\n40,0,0,1\n60,0,,1\n,0,0,1\n60,0,0,1,9\n"),
    ("quotes.csv", '\ufeff"time","x","y","z","label"\r\n0,"0.5",0,1,"a ""b"", c"\r\n20,0,0,1,"two\nlines"\r\n40,0,0,1,"open'),
    ("mixed.csv", "time,x,y,z\n0.5,0,0,1\n2024-05-01T00:00:00Z,0,0,1\n"),
    ("nothing.csv", ""),
    ("only.csv", "time,x,y,z\n"),
    ("what.csv", "name,x,y\n1,2,3\n"),
    ("words.csv", "when,what\nnow,this\n"),
    ("2024.csv", lines("time,x,y,z", PACES)),
    ("going_upstairs_3.csv", lines("epoch time,value x,value y,value z", PACES)),
    ("sitting-1/Accelerometer.csv", lines("time,x,y,z", PACES)),
    ("gap.csv", "time,x,y,z,label\n" + "".join(f"{t},{t},0,1,{label}\n" for t, label in zip(
        (0, 0.1, 0.1, 0.2, 0.3, 0.2, 0.4, 9, 9.1, 9.2), "aaaaabbbbc", strict=True
    ))),
)  # fmt: skip


def csv_cases() -> list[Json]:
    with tempfile.TemporaryDirectory() as folder:
        return [csv_case(Path(folder), *file) for file in FILES]


def csv_case(folder: Path, name: str, text: str, sensors: tuple[str, ...] = ()) -> Json:
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(text.encode())
    case: dict[str, Json] = {"name": name, "text": text, "sensors": list(sensors)}
    try:
        table = read_table(
            path,
            label_of_name(Path(name).parts[0].removesuffix(path.suffix)),
            beside=tuple((one, ()) for one in sensors),
        )
        if not all(table.labels):
            alone = folder / "alone"  # a folder says what a file without any label lacks
            alone.mkdir()
            _ = CsvFolder(path.rename(alone / name).parent).load_person(0)
    except CrowdFLError as error:
        return case | {
            "error": type(error).__name__,
            "message": str(error).replace(f"{folder}/alone/", "").replace(str(path), name),
        }
    labels = sorted(set(table.labels))
    places = np.array([labels.index(label) for label in table.labels], dtype=np.int64)
    signal = np.append(table.signal, table.beside, axis=1)
    stretches = recordings_of(table.times, signal, places, 20.0)
    return case | {
        "times": numbers(table.times, 9),
        "signal": numbers(signal, 9),
        "labels": list(table.labels),
        "channels": signal.shape[1],
        "dropped": dict(table.dropped),
        "recordings": [[labels[stretch.label], len(stretch.signal)] for stretch in stretches],
    }


TRAININGS: tuple[tuple[str, dict[str, Json], int, tuple[int, ...]], ...] = (
    ("softmax", {"learner": "softmax", "batch": 8, "rate": 0.1}, 45, (1, 4)),
    ("softmax, one batch", {"learner": "softmax", "batch": 1000, "rate": 0.5}, 9, (1,)),
    ("one hidden layer", {"layers": [24], "batch": 16}, 60, (1, 5)),
    (
        "one hidden layer of motion",
        {"layers": [32], "channels": 6, "window_samples": 100, "features": "motion"},
        75,
        (1,),
    ),
    ("two hidden layers", {"layers": [12, 9], "batch": 7, "rate": 0.01}, 40, (1, 3)),
    ("no hidden layer", {"layers": [], "batch": 10}, 40, (2,)),
    ("tanh", {"layers": ["linear 10", "tanh"], "batch": 16, "rate": 0.01}, 50, (1, 6)),
    ("softmax, held near its start", {"learner": "softmax", "batch": 8, "rate": 0.1, "proximal": 0.5}, 45, (4,)),
    ("one hidden layer, held near its start", {"layers": [24], "batch": 16, "proximal": 0.1}, 30, (3,)),
    ("tanh, held near its start", {"layers": ["linear 10", "tanh"], "rate": 0.01, "proximal": 1}, 30, (3,)),
    ("odd", {"layers": ["tanh", "relu", 5, "tanh"], "batch": 1}, 12, (1, 2)),
)


def trainings() -> list[Json]:
    return [training_case(*case) for case in TRAININGS]


def training_case(name: str, change: dict[str, Json], samples: int, epochs: tuple[int, ...]) -> Json:
    """From the learner's first weights, rounded: those after 0 epochs."""
    labels: list[Json] = ["a", "b", "c"]
    training: dict[str, Json] = {
        "labels": labels,
        "channels": 3,
        "window_samples": 6,
        "features": "flat",
        "seed": 11,
        **change,
    }
    recipe = Recipe.of(training)
    learner = recipe.make_learner()
    shape, start = learner.shape, [np.round(array, 4) for array in learner.weights()]
    truth = np.arange(samples) * 7 % 3
    middles = drawn(f"middles {name}", 3, recipe.inputs, scale=0.7)
    rows = np.round(middles[truth] + drawn(f"rows {name}", samples, recipe.inputs, scale=0.6), 2).astype(np.float32)
    ends: list[Json] = []
    for count in (0, *epochs):
        learner.load(start)
        learner.train(rows, truth, replace(recipe.training, epochs=count).at(2, "p"))
        scores = learner.evaluate(rows, truth)
        weights = numbers(shape.flat(learner.weights()), 7)
        said = {"accuracy": round(scores.accuracy, 7), "loss": round(scores.loss, 7)}
        ends.append({"epochs": count, "weights": weights, **said})
    inputs, given = numbers(rows, 2), numbers(truth, 0)
    return {"name": name, "training": training, "inputs": inputs, "labels": given, "ends": ends}


def documents() -> dict[str, str]:
    """The file's name and text: a line for each case."""
    parts: dict[str, Any] = {
        "permutations": permutations(),
        "seeds": seeds(),
        "recipes": recipes(),
        "features": feature_cases(),
        "scalings": scalings(),
        "splits": splits(),
        "csv": csv_cases(),
        "trainings": trainings(),
    }
    texts = [f"{json.dumps(name)}: {written(part)}" for name, part in parts.items()]
    return {"learning.json": "{\n" + ",\n".join(texts) + "\n}\n"}


def written(part: Json) -> str:
    if isinstance(part, list):
        return "[\n" + ",\n".join(json.dumps(case, separators=(",", ":")) for case in part) + "\n]"
    return json.dumps(part, separators=(",", ":"))


def main() -> None:
    """Write it."""
    for name, text in documents().items():
        Path(__file__).with_name(name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
