"""Files that were damaged or made by someone else: models, keys, pools, tokens, settings."""

import io
import json
import tomllib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crowdfl.cli.participant import open_participant
from crowdfl.cli.task.template import template
from crowdfl.learning.datasets.npz_files import read_arrays
from crowdfl.learning.models.forms import from_npz, from_safetensors, require_safetensors, to_npz, to_safetensors
from crowdfl.learning.models.shape import ModelShape
from crowdfl.learning.recipe import Recipe
from crowdfl.services.client.opening import RequesterFile
from crowdfl.services.folders.public_part import read_part
from crowdfl.services.http import tls
from crowdfl.services.http.auth import Tokens
from crowdfl.services.http.wire import error_from
from crowdfl.settings import SpSettings, TaskSettings, to_millionths
from crowdfl.storage.atomic import signing_key
from crowdfl.storage.settings_file import read_service, read_settings
from tests.cli.program import call
from tests.fuzz.trial import JSON, attempt, changed_body, mutated, refused, scaled

SHAPE = ModelShape(("w", "b"), ((2, 3), (3,)))
ARRAYS = [np.arange(6.0).reshape(2, 3), np.arange(3.0)]
SERVICE = (
    'host = "127.0.0.1"\nport = 7101\ncertificate = "a"\nkey = "b"\ntick = "1 s"\non_paid = ["pay"]\nplain_http = false\n'
    f'kgc_key = "{"00" * 32}"\n[kgc]\nurl = "https://kgc:7101"\ntoken = "t"\n'
    '[csp]\nurl = "https://csp:7103"\ntoken = "t"\n[dask]\nscheduler = "tls://127.0.0.1:8786"\n'
)
REQUESTER = (
    f'kgc = "https://kgc"\nsp = "https://[::1]:1"\nkgc_key = "{"00" * 32}"\nkgc_token = "t"\nsp_token = "t"\n'
    "insecure_test_key = true\n"
)
INVITATION = {
    "task": "0",
    "invitation": "x",
    "kgc": "https://kgc:7101",
    "sp": "https://10.0.0.7",
    "kgc_key": "00" * 32,
    "sp_key": "ff" * 32,
    "ca": None,
    "insecure_test_key": True,
}


IN_MEMORY = {
    "npz": (to_npz(SHAPE, ARRAYS), lambda data: from_npz(SHAPE, data)),
    "safetensors": (to_safetensors(SHAPE, ARRAYS), lambda data: from_safetensors(SHAPE, data)),
    "head": (to_safetensors(SHAPE, ARRAYS), lambda data: require_safetensors(SHAPE, len(data), data.__getitem__)),
}


@pytest.mark.parametrize("name", IN_MEMORY)
def test_good_files_are_read(name):
    """The readers under test do accept something."""
    good, read = IN_MEMORY[name]
    assert not refused(attempt(read, good))


@pytest.mark.parametrize("name", IN_MEMORY)
@settings(max_examples=scaled(100))
@given(data=st.data())
def test_damaged_models_and_recordings(name, data):
    good, read = IN_MEMORY[name]
    attempt(read, data.draw(mutated(good) | st.binary(max_size=200)))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("files")


def put(path, data):
    path.write_bytes(data)
    path.chmod(0o600)
    return path


@settings(max_examples=scaled(100))
@given(data=st.data())
def test_damaged_data_files(folder, data):
    stream = io.BytesIO()
    data.draw(st.sampled_from([np.savez, np.savez_compressed]))(stream, windows=np.zeros((3, 4)), user=np.arange(3))
    path = put(folder / "data.npz", stream.getvalue())
    assert not refused(attempt(lambda: read_arrays(path)))
    put(path, data.draw(mutated(stream.getvalue()) | st.binary(max_size=200)))
    attempt(lambda: read_arrays(path))


@given(data=st.data())
def test_damaged_files_of_tokens(folder, data):
    path = folder / "tokens.json"
    path.unlink(missing_ok=True)
    token = Tokens(path).add("platform", "sp")
    altered = data.draw(st.sampled_from(["bytes", "fields", "any"]))
    body = json.loads(path.read_text())
    if altered == "bytes":
        put(path, data.draw(mutated(path.read_bytes())))
    elif altered == "fields":
        put(path, json.dumps(data.draw(changed_body(body))).encode())
    else:
        put(path, json.dumps(data.draw(JSON)).encode())
    attempt(Tokens(path).check, token)
    assert refused(attempt(Tokens(path).check, "crowdfl_" + "A" * 43))


@given(data=st.binary(max_size=60))
def test_damaged_signing_keys(folder, data):
    read = attempt(signing_key, put(folder / "signing.key", data))
    assert refused(read) == (len(data) != 32)


@given(data=st.data())
def test_damaged_certificates(folder, data):
    here = folder / "tls"
    if not here.exists():
        here.mkdir()
        tls.make_ca(here)
    files = tls.CertificateFiles(folder / "damaged.pem", folder / "damaged.key")
    for source, target in (("ca.pem", files.certificate), ("ca.key", files.key)):
        good = (here / source).read_bytes()
        put(target, data.draw(st.just(good) | mutated(good)))
    attempt(tls.require_usable, files)


@given(data=st.data())
def test_damaged_public_parts(folder, data):
    """Read and summed up in digits, or refused: the file comes from another organisation."""
    here = folder / "sp-role"
    if not here.exists():
        assert call("init", here, "--role", "sp").code == 0
    good, path = (here / "sp.public.json").read_bytes(), folder / "sp.public.json"
    body = data.draw(st.sampled_from([json.loads(good), None]))
    put(path, json.dumps(data.draw(changed_body(body))).encode() if body else data.draw(mutated(good)))
    read = attempt(read_part, path)
    assert refused(read) or len(read.fingerprint) == 47


SETTINGS_FILES = {
    "task": (template, read_settings),
    "service": (SERVICE, lambda path: read_service(SpSettings, path)),
    "requester": (REQUESTER, RequesterFile.read),
}


@pytest.mark.parametrize("name", SETTINGS_FILES)
def test_good_settings_are_read(folder, name):
    """The readers under test do accept something."""
    text, read = SETTINGS_FILES[name]
    put(folder / "t", b"token")
    assert not refused(attempt(read, put(folder / "good.toml", text.encode())))


@pytest.mark.parametrize("name", SETTINGS_FILES)
@given(data=st.data())
def test_damaged_settings(folder, name, data):
    text, read = SETTINGS_FILES[name]
    attempt(read, put(folder / "damaged.toml", data.draw(mutated(text.encode()) | st.binary(max_size=50))))


VALUES = ["0", "-1", "1e400", "nan", '""', '"x"', "[]", "{}", "true", "9" * 30, "1979-05-27", '"\\u0000"', "[1, 'a']"]


@pytest.mark.parametrize("name", ["service", "requester"])
@given(value=st.sampled_from(VALUES), place=st.integers(0, 20))
def test_settings_of_another_type(folder, name, value, place):
    text, read = SETTINGS_FILES[name]
    lines = text.splitlines()
    places = [index for index, line in enumerate(lines) if "=" in line]
    here = places[place % len(places)]
    lines[here] = f"{lines[here].split('=')[0]}= {value}"
    attempt(read, put(folder / "other.toml", "\n".join(lines).encode()))


def settings_of(body):
    made = TaskSettings.of(**body)
    return made, made.floor_units


@settings(max_examples=scaled(100))
@given(body=changed_body(tomllib.loads(template)["settings"]))
def test_settings_of_a_task(body):
    attempt(settings_of, {str(name): value for name, value in body.items()})


@given(amount=st.text(max_size=20) | JSON)
def test_amounts_of_money(amount):
    made = attempt(to_millionths, amount)
    assert refused(made) or (isinstance(made, int) and made >= 0)


@given(body=JSON, status=st.integers(400, 599))
def test_problems_of_a_hostile_service(body, status):
    assert refused(attempt(error_from, status, body))


@given(data=st.data())
def test_damaged_invitations(folder, data):
    text = json.dumps(data.draw(changed_body(INVITATION) | JSON)).encode()
    path = put(folder / "invitation.json", data.draw(st.just(text) | mutated(text)))
    attempt(opened_as_participant, path, folder / "home")


def opened_as_participant(path, home):
    with open_participant(path, home, as_json=True) as person:
        return person.task


def test_a_good_invitation_is_read(folder):
    """The reader under test does accept something."""
    path = put(folder / "invitation.json", json.dumps(INVITATION).encode())
    assert attempt(opened_as_participant, path, folder / "home") == "0"


@given(training=changed_body({"labels": ["a", "b"], "features": "motion", "learner": "softmax", "epochs": 1}))
def test_training_settings_of_a_hostile_requester(training):
    """What a participant's learner is told was written by a stranger."""
    attempt(lambda section: Recipe.of(section).make_learner(), training)
