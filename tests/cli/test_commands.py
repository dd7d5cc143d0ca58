"""Every command: its help, its answers to wrong input, its JSON, its exit codes."""

import json
import os
import re
import subprocess
import sys
import tomllib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import typer

from crowdfl.cli import main
from crowdfl.cli import participant as participant_cli
from crowdfl.cli.task.template import task_text, template
from crowdfl.errors import FormatError, SettingsError
from crowdfl.learning.datasets.sources import load_split
from crowdfl.roles.defining import defined
from crowdfl.services.folders.public_part import read_part
from crowdfl.services.http.tls import CertificateFiles, require_usable
from crowdfl.storage.atomic import signing_key
from crowdfl.storage.model_files import read_model, write_model
from crowdfl.storage.settings_file import SERVICES, read_service
from tests import subprocesses
from tests.cli.program import call, public, settings
from tests.learning.test_csv_files import samples, write

SOFTMAX = template.replace('learner = "network"', 'learner = "softmax"')


def every_command():
    found, waiting = [], [((), typer.main.get_command(main.app))]
    while waiting:
        words, command = waiting.pop()
        found.append(words)
        if hasattr(command, "list_commands"):
            waiting += [((*words, name), command.get_command(None, name)) for name in command.list_commands(None)]
    return found


COMMANDS = every_command()


def test_the_tree_is_the_one_that_was_promised():
    top = {words[0] for words in COMMANDS if words}
    assert top >= {"init", "kgc", "sp", "csp", "task", "participant", "evaluate", "predict", "audit", "bench", "doctor"}
    steps = {words[1] for words in COMMANDS if len(words) == 2 and words[0] == "task"}
    wanted = "new create explain fund invite watch pause resume cancel close console fetch report"
    assert steps >= set(wanted.split())
    assert "crowdfl train --data watch:0" in " ".join(call("--help").out.replace("│", " ").split())


BARE = """
import sys
class Nothing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {blocked}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Nothing())
from crowdfl.cli.main import run
for words in {commands}:
    sys.argv = ["crowdfl", *words]
    try:
        run()
    except SystemExit as end:
        print("ended with", end.code or 0)
"""
SERVERS = {"alembic", "fastapi", "prometheus_client", "psycopg", "starlette", "structlog", "uvicorn"}


def run_bare(blocked, *commands):
    """What commands print, and how they end, where these packages are not installed."""
    script = BARE.format(blocked=sorted(blocked), commands=[list(map(str, words)) for words in commands])
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "check": False}
    done = subprocesses.run([sys.executable, "-uc", script], env=os.environ | {"COLUMNS": "200"}, **options)
    assert "Traceback" not in done.stdout
    *told, rest = re.split(r"ended with (\d+)\n", done.stdout)
    assert (rest, len(told)) == ("", 2 * len(commands)), done.stdout
    return [(int(code), said) for said, code in zip(told[::2], told[1::2], strict=True)]


@pytest.mark.second
@pytest.mark.parametrize(
    ("blocked", "expected"),
    [
        (
            SERVERS,
            {
                ("sp", "serve", "--folder", "x"): (3, "`crowdfl sp` needs fastapi: `pip install 'crowdfl[services]'`"),
                ("task", "console"): (3, "`crowdfl task console` needs uvicorn: `pip install 'crowdfl[services]'`"),
                ("task", "--help"): (0, "console"),
                ("participant", "--help"): (0, "Join and take part"),
            },
        ),
        (
            {"torch"},
            {
                ("train", "--data", "watch:0", "--epochs", "2"): (0, "network of 1,991 parameters"),
                ("train", "--data", "watch:0", "--model", "conv"): (
                    3,
                    "needs torch: `pip install 'crowdfl[learning]'`",
                ),
            },
        ),
        (
            SERVERS | {"httpx"},
            {
                ("--help",): (0, "Not installed: pip install 'crowdfl[services]'"),
                ("participant", "look", "x"): (3, "`pip install 'crowdfl[participant]'`"),
                ("audit", "--help"): (0, "--check"),
                ("train", "--help"): (0, "--save"),
            },
        ),
    ],
    ids=["without servers", "without torch", "without httpx too"],
)
def test_without_packages_of_extras(blocked, expected):
    """Help is help, a command says what it lacks, and what needs no server runs."""
    for (code, said), words in zip(run_bare(blocked, *expected), expected, strict=True):
        assert code == expected[words][0], said
        assert expected[words][1] in said


@pytest.mark.second
def test_a_requester_is_set_up_without_the_packages_of_servers(made, tmp_path):
    """Its own folder, and KGC's and SP's parts accepted; what a service needs is told by name."""
    steps = [("init", tmp_path / "own", "--role", "requester")]
    for role in ("kgc", "sp"):
        part = ("exchange", "accept", tmp_path / "own/settings.toml", public(made, role), "--fingerprint")
        steps.append((*part, read_part(public(made, role)).fingerprint))
    steps.append((*steps[-1][:2], settings(made, "kgc"), *steps[-1][3:]))
    *good, (code, said) = run_bare(SERVERS, *steps)
    assert [code for code, _ in good] == [0, 0, 0], good
    assert (code, "PackageMissing" in said) == (3, True)


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_help(words):
    result = call(*words, "--help")
    assert result.code == 0
    assert "Usage" in result.out


def test_init_makes_files_for_their_owner_alone(workspace):
    """Each role finds its own folder, and nobody else can look in."""
    assert {path.name for path in workspace.iterdir()} == {"kgc", "sp", "csp", "requester"}
    assert all(path.stat().st_mode & 0o077 == 0 for path in (workspace, *workspace.rglob("*")))


def test_init_tells_kgc_and_csp_the_key_that_sp_signs_with(workspace):
    """It is SP's from the start: what SP signs later is checked with what the others were given here."""
    key = signing_key(workspace / "sp" / "signing.key").public
    assert [read_service(SERVICES[role], workspace / role / "settings.toml").sp_key for role in ("kgc", "csp")] == [
        key
    ] * 2


def test_init_prepares_a_cluster_for_each_server_of_its_own(workspace):
    """Another scheduler, and a certificate that the other's does not open; threads until it is asked for."""
    found = [read_service(SERVICES[role], workspace / role / "settings.toml") for role in ("sp", "csp")]
    assert [one.compute for one in found] == ["threads", "threads"]
    assert len({one.dask.scheduler for one in found}) == 2
    assert len({one.dask.certificate.read_bytes() for one in found}) == 2
    for one in found:
        assert one.dask.ca == one.dask.certificate
        require_usable(CertificateFiles(one.dask.certificate, one.dask.key))


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ((), 2, ""),
        (("nonsense",), 2, "nonsense"),
        (("task", "create"), 2, "file"),
        (("bench", "crypto", "--quick", "--check"), 2, "smoke run"),
        (("init", "{tmp}"), 3, "SettingsError"),
        (("sp", "serve", "{tmp}/none.toml"), 3, "SettingsError"),
        (("sp", "serve", "{tmp}/broken.toml"), 3, "SettingsError"),
        (("sp", "serve", "{sp}", "--compute", "abacus"), 3, "SettingsError"),
        (("sp", "serve", "{sp}", "--scheduler", "tls://127.0.0.1:1"), 3, "SettingsError"),
        (("sp", "serve", "{sp}", "--compute", "dask", "--scheduler", "tcp://10.0.0.7:1"), 3, "ClusterUnprotected"),
        (("kgc", "serve", "{sp}", "--compute", "dask"), 2, "--compute"),
        (("sp", "token", "revoke", "{sp}", "nobody"), 3, "NotReady"),
        (("sp", "token", "add", "{sp}", "me", "king"), 3, "SettingsError"),
        (("sp", "token", "add", "{sp}", "requester", "requester"), 3, "Conflict"),
        (("task", "create", "{tmp}/none.toml", "-s", "{requester}"), 3, "SettingsError"),
        (("task", "create", "{tmp}/empty.toml", "-s", "{requester}"), 3, "SettingsError"),
        (("task", "report", "0" * 64, "-s", "{tmp}/none.toml"), 3, "SettingsError"),
        (("task", "fetch", "0" * 64, "{tmp}/model.npz", "-s", "{requester}"), 3, "UnknownTask"),
        (("task", "fetch", "0" * 64, "{tmp}/model", "--format", "pickle", "-s", "{requester}"), 3, "SettingsError"),
        (("task", "watch", "0" * 64, "--until", "done", "-s", "{requester}"), 3, "SettingsError"),
        (("task", "fund", "0" * 64, "much", "-s", "{requester}"), 3, "SettingsError"),
        (
            ("task", "run", "{tmp}/task.toml", "{tmp}/i", "{tmp}/m.npz", "-n", "99", "-s", "{requester}"),
            3,
            "SettingsError",
        ),
        (("participant", "look", "{tmp}/none.json"), 3, "SettingsError"),
        (("participant", "run", "{tmp}/empty.toml", "--data", "watch:0"), 3, "SettingsError"),
        (("evaluate", "{tmp}/none.npz", "--data", "watch:0"), 3, "SettingsError"),
        (("evaluate", "{tmp}/none.pt", "--data", "watch:0"), 3, "SettingsError"),
        (("predict", "{model}", "--data", "nowhere:0"), 3, "SettingsError"),
        (("predict", "{model}", "--data", "watch:99"), 3, "DataMissing"),
        (("predict", "{model}", "--data", "{tmp}/none.csv"), 3, "DataMissing"),
        (("predict", "{model}", "--data", "{tmp}/noise.csv"), 3, "DataMalformed"),
        (("evaluate", "{model}", "--data", "{tmp}/plain.csv"), 3, "DataMalformed"),
        (("doctor", "{tmp}/none.toml"), 1, ""),
    ],
)
def test_bad_input_is_told_by_name(tmp_path, workspace, model, words, code, said):
    """A named error on standard error, the documented exit code, and no traceback."""
    (tmp_path / "broken.toml").write_text("host = [")
    (tmp_path / "empty.toml").write_text("")
    (tmp_path / "task.toml").write_text(SOFTMAX)
    (tmp_path / "noise.csv").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "plain.csv").write_text(csv_text(first_samples()))
    places = {
        "tmp": tmp_path,
        "sp": workspace / "sp/settings.toml",
        "requester": workspace / "requester/settings.toml",
        "model": model,
    }
    result = call(*(word.format(**places) for word in words))
    assert result.code == code, result
    assert said in result.err + result.out
    assert "Traceback" not in result.err


def _task_file(folder, *changes, profile="shares"):
    text = call("task", "new", "--all", "--profile", profile).out
    for before, after in changes:
        assert before in text
        text = text.replace(before, after)
    (folder / "task.toml").write_text(text)
    return folder / "task.toml"


EPOCHS = ("epochs = 20 ", "epochs = 2 ")
STEP = "\n[who]\n"
UNPAID = [  # nobody checks, and nobody is paid
    ('check = "bounds"', 'check = "none"'),
    *((f"\n{name} = ", f"\n# {name} = ") for name in ("budget", "currency", "lanes")),
]
EQUAL = ('weighting = "equal"', 'weighting = "samples"')


def test_explain_shows_widths_and_what_is_dealt_before_anything_is_made(tmp_path):
    told = call("task", "explain", _task_file(tmp_path)).out
    assert "people         count once; no number of samples leaves a device" in told
    assert "everyone in a round's average gets the same" in told
    assert "dealt by KGC   SP" in told
    assert "warning" not in told


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ([EQUAL, ("max_norm = 10.0", "# max_norm = 10.0")], "no norm bound"),
        ([EQUAL], "people         count by their samples"),
        (
            [(STEP, STEP.replace("\n[", '\n[shares.server_step]\nkind = "fedyogi"\n['))],
            "fedyogi moves most weights by about that much",
        ),
        (
            [(STEP, STEP.replace("\n[", '\n[shares.server_step]\nkind = "fedavgm"\n['))],
            "moves a weight by at most 100 in a round",
        ),
        (UNPAID, "spoils the average"),
    ],
)
def test_explain_warns_of_what_a_requester_should_know(tmp_path, changes, words):
    assert words in call("task", "explain", _task_file(tmp_path, *changes)).out


@pytest.mark.parametrize(
    ("bound", "words"),
    [
        ("0.01", "with max_norm = 0.01 these are scaled down"),
        ("9000", "one person can do as much as"),
        ("0.4", "is enough"),
    ],
)
def test_a_trial_measures_updates_and_says_whether_the_bound_fits(tmp_path, bound, words):
    changes = ("max_norm = 10.0", f"max_norm = {bound}"), ('learner = "network"', 'learner = "softmax"'), EPOCHS
    told = call("task", "explain", _task_file(tmp_path, *changes), "--try", "watch:0").out
    assert "an update of length" in told
    assert words in told.splitlines()[-1]


def test_explain_knows_the_other_profiles(tmp_path):
    assert "packing" in call("task", "explain", _task_file(tmp_path, profile="hardened")).out
    assert "leaks" in call("task", "explain", _task_file(tmp_path, profile="paper")).out


def test_task_new_is_a_task_file():
    """What it prints is TOML, every line of settings explained, and makes a task."""
    result = call("task", "new", "--all")
    found = tomllib.loads(result.out)
    definition, initial = defined(Path("task.toml"), tomllib.loads(SOFTMAX))
    assert definition.spec.parameters == sum(array.size for array in initial)
    assert result.out.count("#") >= len(found["settings"])


@pytest.mark.parametrize("profile", ["shares", "hardened", "paper"])
def test_task_new_has_what_a_person_decides_on_half_a_screen(profile):
    lines = task_text(profile, every=False).splitlines()
    assert len(lines) <= 25
    assert tomllib.loads("\n".join(lines))["form"] == 1


def test_tokens_rotate_and_revoke(workspace):
    """A token is shown once, also to a program; the file holds no token; who holds one is listed."""
    settings = workspace / "sp/settings.toml"
    shown = [call("sp", "token", "add", settings, "watcher", "operator").out.strip()]
    shown.append(call("sp", "token", "rotate", settings, "watcher").out.strip())
    for words in (("rotate", settings, "watcher"), ("add", settings, "other", "operator")):
        shown.append(json.loads(call("sp", "token", *words, "--json").out)["token"])
    assert len(set(shown)) == 4
    assert all(token.startswith("crowdfl_") for token in shown)
    kept = (workspace / "sp/tokens.json").read_text()
    assert not any(token in kept for token in shown)
    listed = json.loads(call("sp", "token", "list", settings, "--json").out)
    assert {"name": "watcher", "role": "operator", "until": None} in listed
    assert call("sp", "token", "revoke", settings, "watcher").code == 0
    assert "watcher" not in call("sp", "token", "list", settings).out


def first_samples():
    """The first two windows held out of a person's data, which overlap by 75 samples, in g and rad/s."""
    windows = load_split("watch:0").held_out.windows
    assert np.array_equal(windows[0][25:], windows[1][:75])
    return np.concatenate([windows[0], windows[1][75:]]) * [1, 1, 1, 2, 2, 2]


def csv_text(samples):
    """As a sensor app would export them, at 50 Hz."""
    names = "time (s),ax (g),ay (g),az (g),gx (rad/s),gy (rad/s),gz (rad/s)"
    lines = [",".join(f"{value:.8f}" for value in (i / 50, *row)) for i, row in enumerate(samples)]
    return "\n".join((names, *lines)) + "\n"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A model as `task fetch` writes it, its weights made up."""
    definition, initial = defined(Path("task.toml"), tomllib.loads(SOFTMAX))
    path = tmp_path_factory.mktemp("model") / "model.npz"
    generator = np.random.default_rng(0)
    write_model(path, definition, [generator.normal(size=array.shape) for array in initial])
    return path


def test_evaluate_and_predict_agree(model):
    """The accuracy is that of the predictions, and the confusion table counts every window."""
    found = json.loads(call("evaluate", model, "--data", "watch:0", "--data", "watch:1", "--json").out)
    guessed, labels = [], []
    for person in ("watch:0", "watch:1"):
        windows = json.loads(call("predict", model, "--data", person, "--json").out)["windows"]
        guessed += [window["label"] for window in windows]
        held_out = load_split(person).held_out
        labels += [held_out.label_names[label] for label in held_out.labels]
        assert all(abs(sum(window["probabilities"].values()) - 1) < 1e-4 for window in windows)
    right = np.mean([a == b for a, b in zip(guessed, labels, strict=True)])
    assert found["accuracy"] == pytest.approx(right)
    assert np.sum(found["confusion"]) == found["windows"] == len(labels)
    names = list(found["classes"])
    table = np.array(found["confusion"])
    assert found["classes"][names[0]]["recall"] == pytest.approx(table[0, 0] / table[0].sum())
    assert "accuracy" in call("evaluate", model, "--data", "watch:0").out


def test_evaluate_on_everyone_on_some_and_on_who_did_not_take_part(model):
    """The whole is what the people make up, and a table shows each of them."""
    everyone = json.loads(call("evaluate", model, "--data", "watch:", "--json").out)
    assert list(everyone["each"]) == [f"watch:{person}" for person in range(10)]
    assert everyone["windows"] == sum(one["windows"] for one in everyone["each"].values())
    right = sum(one["windows"] * one["accuracy"] for one in everyone["each"].values())
    assert everyone["accuracy"] == pytest.approx(right / everyone["windows"])
    others = call("evaluate", model, "--data", "watch:", *(w for n in range(8) for w in ("--except", f"watch:{n}")))
    assert [f"watch:{person}" in others.out for person in (0, 7, 8, 9)] == [False, False, True, True]
    for wrong, words in (("watch:12", "not among the data"), ("watch:", "nobody to evaluate on")):
        refused = call("evaluate", model, "--data", "watch:", "--except", wrong)
        assert refused.code == 3
        assert words in refused.err


def test_a_window_in_a_csv_file_is_predicted_as_the_window_itself(model, tmp_path):
    path = tmp_path / "samples.csv"
    path.write_text(csv_text(first_samples()))
    from_file = json.loads(call("predict", model, "--data", path, "--json").out)["windows"]
    from_person = json.loads(call("predict", model, "--data", "watch:0", "--json").out)["windows"]
    assert from_file[0]["start"] == 0
    assert from_file[0]["label"] == from_person[0]["label"]
    first, second = from_file[0]["probabilities"], from_person[0]["probabilities"]
    assert all(abs(first[name] - second[name]) < 1e-3 for name in first)
    assert call("predict", model, "--data", path).out.startswith("window,start,label,probability\n0,0.0,")
    assert json.loads(call("predict", model, "--data", f"csv:{path}", "--json").out)["windows"] == from_file


def test_what_training_takes_prediction_takes_too(tmp_path):
    rows = [f"{row},{'rest' if i < 1000 else 'run'}" for i, row in enumerate(samples(40))]
    file, saved = write(tmp_path / "anna" / "monday.csv", "time,x,y,z,label", rows), tmp_path / "model.npz"
    for data in (f"csv:{tmp_path / 'anna'}", f"csv:{file}", file):
        trained = call("train", "--data", data, "--model", "softmax", "--epochs", "1", "--save", saved, "--json")
        assert json.loads(trained.out)["windows"]["train"] > 0, trained
        for command in ("evaluate", "predict"):
            used = call(command, saved, "--data", data, "--json")
            assert used.code == 0, used
    named = write(tmp_path / "run_2.csv", "time,x,y,z", samples(10))
    found = json.loads(call("evaluate", saved, "--data", named, "--json").out)
    assert found["classes"]["run"]["windows"] == found["windows"] > 0, "labelled by its name, as in training"


@pytest.mark.parametrize(
    ("learner", "said"), [("own:Net", "then say --learner own:Net"), ("functions", "take part by `crowdfl.join`")]
)
def test_code_that_is_missing_is_asked_for_by_name(tmp_path, learner, said):
    definition, initial = defined(Path("task.toml"), tomllib.loads(SOFTMAX))
    coded = replace(definition, training={**definition.training, "learner": learner})
    write_model(tmp_path / "model.npz", coded, initial)
    for command in ("evaluate", "predict"):
        refused = call(command, tmp_path / "model.npz", "--data", "watch:0")
        assert refused.code == 3
        assert said in refused.err


@pytest.mark.parametrize("form", [".npz", ".safetensors"])
def test_a_model_file_carries_what_is_needed_to_use_it(tmp_path, form):
    """Written and read again, in both forms; without its description it is refused."""
    definition, initial = defined(Path("task.toml"), tomllib.loads(SOFTMAX))
    path = tmp_path / f"model{form}"
    write_model(path, definition, initial)
    again, arrays = read_model(path)
    assert again == definition
    assert all(np.array_equal(a, b) for a, b in zip(arrays, initial, strict=True))
    beside = path.with_name(path.name + ".json")
    beside.write_text("{}")
    with pytest.raises(FormatError, match="does not describe"):
        read_model(path)
    beside.unlink()
    with pytest.raises(SettingsError, match="there is no"):
        read_model(path)


def test_doctor_finds_this_machine_fit(tmp_path):
    found = json.loads(call("doctor", "--folder", tmp_path, "--json").out)
    assert found["ok"] is True
    assert {"Python", "gmpy2", "cryptography", "entropy", "disk", "fsync"} <= {
        line["what"] for line in found["findings"]
    }
    assert call("doctor", "--folder", tmp_path / "none").code == 1


def test_doctor_finds_what_is_wrong_with_a_role(workspace):
    settings = workspace / "sp/settings.toml"
    (workspace / "sp/csp.token").chmod(0o644)
    result = call("doctor", settings, "--json")
    verdicts = {line["what"]: line["verdict"] for line in json.loads(result.out)["findings"]}
    assert result.code == 1
    assert verdicts["sp: permissions"] == "fail"
    assert verdicts["sp: CSP"] == "fail"
    assert verdicts["sp: certificate"] == "ok"


def test_doctor_looks_for_the_cluster_of_a_role_that_computes_there(workspace):
    """One that does not answer is a failure; a role on threads has none."""
    settings = workspace / "csp/settings.toml"
    text = settings.read_text()
    settings.write_text(text.replace("127.0.0.1:8796", "127.0.0.1:1"))
    assert "csp: cluster" not in call("doctor", settings, "--json").out
    settings.write_text(settings.read_text().replace('compute = "threads"', 'compute = "dask"'))
    findings = {line["what"]: line for line in json.loads(call("doctor", settings, "--json").out)["findings"]}
    assert findings["csp: cluster"]["verdict"] == "fail"
    assert findings["csp: cluster"]["found"] == "BackendUnavailable"


def test_a_participant_is_told_what_is_missing_of_its_pay(capsys):
    participant_cli.say("claimed", {"millionths": 5_000_000, "currency": "EUR", "missing": {2: 1_500_000}})
    participant_cli.say("claimed", {"millionths": 5_000_000, "currency": "EUR"})
    short, whole = capsys.readouterr().out.splitlines()
    said = "you have claimed, and the platform is to pay, 5.00 EUR so far"
    assert short == f"{said}; round 2: 1.50 EUR less than you earned: ask the platform why"
    assert whole == said
