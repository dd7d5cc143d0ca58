"""The phone's training worker in a real browser, under the page's own policy: what it trains is what Python trains."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Page

from crowdfl.learning.recipe import Recipe
from tests.web import browsers, pages

VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "learning.json").read_text(encoding="utf-8"))
SPLIT = next(case for case in VECTORS["splits"] if case["name"] == "same rate")
TRAINING = SPLIT["training"] | {"learner": "network", "hidden": [8], "epochs": 3, "batch": 8, "seed": 5}
SCRIPT = """
import { TrainingWorker } from "./learning/client.js";
const floats = (list) => Float64Array.from(list);
const worker = new TrainingWorker();
const jobOf = ({ training, shape, weights, recordings }) => ({
  training, shape, weights: floats(weights), round: 2, name: "p",
  recordings: recordings.map((one, id) => ({ ...one, id: String(id), times: floats(one.times), signal: floats(one.signal) })),
});
globalThis.train = async (given) => {
  const { weights, ...rest } = await worker.train(jobOf(given));
  return { ...rest, weights: Array.from(weights) };
};
globalThis.stopAfterReports = async (given, reports) => {
  const stop = new AbortController();
  let seen = 0;
  const onProgress = () => { if (++seen === reports) stop.abort(); };
  const error = await worker.train(jobOf(given), { signal: stop.signal, onProgress }).catch((refused) => refused.name);
  return [error, seen, (await worker.prepare(jobOf(given))).train];
};
globalThis.refused = (given) => worker.prepare(jobOf(given)).catch((error) => `${error.name}: ${error.message}`);
"""


def files() -> dict[str, str]:
    """A page, and what its worker imports."""
    phone = pages.WEB / "phone"
    modules = [*(phone / "learning").glob("*.js"), phone / "protocol" / "errors.js"]
    served = {f"/join/{path.relative_to(phone)}": path.read_text(encoding="utf-8") for path in modules}
    html = '<!doctype html><title>t</title><script type="module" src="page.js"></script>'
    return served | {"/join/": html, "/join/page.js": SCRIPT, "/favicon.ico": ""}


@pytest.fixture
def page(phone: Page, tmp_path: Path) -> Iterator[Page]:
    with pages.served(tmp_path, files()) as address:
        wrong = browsers.complaints(phone)
        phone.goto(f"{address}/join/")
        phone.wait_for_function("() => globalThis.refused !== undefined")
        yield phone
        assert wrong == []


def given(**changes: object) -> dict[str, Any]:
    """A job, and the weights that it starts from."""
    learner = Recipe.of(TRAINING).make_learner()
    shape = [list(pair) for pair in zip(learner.shape.names, learner.shape.shapes, strict=True)]
    weights = np.round(learner.shape.flat(learner.weights()), 4).tolist()
    job = {"training": TRAINING, "shape": shape, "weights": weights, "recordings": SPLIT["recordings"]}
    return job | changes


def test_a_browser_trains_what_python_trains(page):
    """From recordings to weights and scores, in a module worker."""
    job, recipe = given(), Recipe.of(TRAINING)
    learner = recipe.make_learner()
    learner.load(learner.shape.arrays(job["weights"]))
    mine, held_out = (
        (recipe.inputs_of(np.array(side["windows"], dtype=np.float32).reshape(-1, 10, 3)), np.array(side["labels"]))
        for side in (SPLIT["train"], SPLIT["heldOut"])
    )
    before = learner.evaluate(*held_out)
    learner.train(*mine, recipe.training.at(2, "p"))
    made = page.evaluate("(job) => train(job)", job)
    assert made["weights"] == pytest.approx(learner.shape.flat(learner.weights()), abs=1e-4)
    assert made["samples"] == len(mine[1])
    assert made["before"] == pytest.approx(vars(before), abs=1e-4)
    assert made["after"] == pytest.approx(vars(learner.evaluate(*held_out)), abs=1e-4)


def test_training_reports_to_the_page_and_can_be_stopped(page):
    """Ten thousand epochs end at the third report, and the worker goes on to other work."""
    endless = given(training=TRAINING | {"epochs": 10_000})
    assert page.evaluate("(job) => stopAfterReports(job, 3)", endless) == [
        "Cancelled",
        3,
        len(SPLIT["train"]["labels"]),
    ]


def test_errors_of_the_worker_reach_the_page_by_name(page):
    refused = page.evaluate("(job) => refused(job)", given(training=TRAINING | {"learner": "conv"}))
    assert refused.startswith("UnsupportedTask: this task trains a convolutional network")
