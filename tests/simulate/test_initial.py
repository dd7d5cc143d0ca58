"""`crowdfl task create --initial`: a task whose model is a file, for people who bring their own training."""

import tomllib

import numpy as np
import pytest
from safetensors.numpy import save_file

import crowdfl
from crowdfl.documents.task_summary import task_summary
from crowdfl.errors import EncodingError, FormatError, ModelMismatch, NotFinite, SettingsError
from crowdfl.learning.models.forms import ModelForm, dictionary_form
from crowdfl.learning.recipe import Recipe
from crowdfl.roles.defining import defined
from crowdfl.storage.model_files import read_initial
from tests.cli.program import call
from tests.simulate.test_join import TASK

SOFTMAX = TASK.replace('learner = "functions"', 'learner = "softmax"\nchannels = 1\nwindow_samples = 4')
ARRAYS = {"w": np.ones((2, 3)), "b": np.zeros(2)}


def test_a_file_says_what_the_model_is(tmp_path):
    """Names, shapes and numbers, in its order; integers are left out. Nothing is said about sensors."""
    np.savez(tmp_path / "start.npz", **ARRAYS, steps=np.array(3))
    definition, weights = defined("task", tomllib.loads(TASK), initial=read_initial(tmp_path / "start.npz"))
    assert (definition.shape.names, definition.shape.shapes) == (("w", "b"), ((2, 3), (2,)))
    assert [array.tolist() for array in weights] == [[[1.0] * 3] * 2, [0.0] * 2]
    assert "by a function of your own" in task_summary(definition, 5)
    assert "channels" not in task_summary(definition, 5)


def test_arrays_that_were_saved_without_names_are_a_list(tmp_path):
    """`numpy.savez` calls them arr_0 and so on; a participant brings a list, or a single array."""
    np.savez(tmp_path / "start.npz", np.ones((2, 3)), np.zeros(2))
    definition, _ = defined("task", tomllib.loads(TASK), initial=read_initial(tmp_path / "start.npz"))
    assert definition.shape.names == ("array 0", "array 1")
    ModelForm.of([np.ones((2, 3)), np.zeros(2)]).ordered_as(definition.shape)


def test_a_safetensors_file_is_always_the_same_task(tmp_path):
    """Its reader hands arrays over in another order each time; those of a list keep theirs."""
    names = [f"array {place}" for place in range(12)]
    save_file({name: np.full(2, place / 2) for place, name in enumerate(names)}, tmp_path / "start.safetensors")
    found = [read_initial(tmp_path / "start.safetensors") for _ in range(3)]
    assert [list(arrays) for arrays in found] == [names] * 3
    definition, weights = defined("task", tomllib.loads(TASK), initial=found[0])
    assert [array[0] for array in dictionary_form(definition.shape).model(weights)] == [n / 2 for n in range(12)]


def test_without_code_or_a_file_the_model_is_not_known():
    with pytest.raises(SettingsError, match="--initial"):
        defined("task", tomllib.loads(TASK))


def test_a_file_for_a_learner_must_be_of_its_shape():
    task = tomllib.loads(SOFTMAX)
    shape = defined("task", task)[0].shape
    fresh = {name: np.full(sides, 0.5) for name, sides in zip(shape.names, shape.shapes, strict=True)}
    definition, weights = defined("task", task, initial=dict(reversed(fresh.items())))
    assert definition.shape == shape
    assert all((array == 0.5).all() for array in weights)
    with pytest.raises(ModelMismatch, match="is missing"):
        defined("task", task, initial=ARRAYS)


@pytest.mark.parametrize(
    ("name", "content", "error", "said"),
    [
        ("none.npz", None, SettingsError, "there is no model at"),
        ("model.pt", b"", SettingsError, r"\.safetensors or \.npz, not '\.pt'"),
        ("bad.npz", b"PK", FormatError, "bad.npz: the model is not a readable npz"),
        ("bad.safetensors", b"x" * 20, FormatError, "not a readable safetensors"),
        ("objects.npz", {"w": np.array([None, 1])}, FormatError, "not a readable npz"),
        ("complex.npz", {"w": np.array([1j])}, EncodingError, "w holds complex128"),
        ("nan.npz", {"w": np.array([np.nan])}, NotFinite, "w holds NaN"),
        ("counts.npz", {"n": np.array([1])}, EncodingError, "nothing that can be averaged"),
    ],
)
def test_a_file_that_cannot_be_used_is_named(tmp_path, name, content, error, said):
    """What is wrong with it, and where it is."""
    path = tmp_path / name
    if isinstance(content, dict):
        np.savez(path, **content)
    elif content is not None:
        path.write_bytes(content)
    with pytest.raises(error, match=said):
        read_initial(path)


def test_explain_takes_a_file(tmp_path):
    (tmp_path / "task.toml").write_text(TASK)
    np.savez(tmp_path / "start.npz", **ARRAYS)
    told = call("task", "explain", tmp_path / "task.toml", "--initial", tmp_path / "start.npz")
    assert told.code == 0, told
    assert "shares, 8 parameters" in told.out
    assert "--try" not in told.out, "functions of people's own cannot be tried here"


def test_a_command_says_where_functions_take_part():
    """It cannot train or use their model itself."""
    with pytest.raises(SettingsError, match=r"take part by `crowdfl\.join`"):
        Recipe.of(tomllib.loads(TASK)["training"]).make_learner()


def test_what_everyone_starts_from_is_copied_once():
    """Functions that change models in place, or a network whose `state_dict` it is, change no later run."""
    start = [np.zeros(3), np.ones(2)]

    def fit(model, _data):
        model[0] += 1.0
        start[1] += 1.0  # as a network's own tensors, which a `state_dict` shows
        return model

    first = crowdfl.simulate(fit, None, [[1]] * 3, rounds=2, initial=start, progress=False)
    assert start[0].tolist() == [0.0] * 3
    assert first.model[0] == pytest.approx([2.0] * 3)
    assert first.model[1] == pytest.approx([1.0] * 2)
