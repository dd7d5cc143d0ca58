"""The forms that a model may have: what is copied out of each, what is built again, and what cannot be taken."""

import itertools
from collections import OrderedDict

import numpy as np
import pytest

from crowdfl.errors import EncodingError, LearningUnavailable, ModelMismatch, NotFinite
from crowdfl.learning.models.forms import (
    ModelForm,
    dictionary_form,
    model_npz,
    model_safetensors,
    named_arrays,
    read_arrays,
)
from crowdfl.learning.models.shape import ModelShape

FORMS = {
    "list": [np.ones((2, 3)), np.zeros(2)],
    "tuple": (np.ones((2, 3), dtype=np.float32), np.zeros(2)),
    "single": np.ones((2, 3), dtype=np.float16),
    "dictionary": {"w": np.ones((2, 3)), "b": 0.5, "steps": np.array(7)},
    "ordered": OrderedDict(w=np.ones(3), b=np.float32(0.25)),
    "numbers": [0.5, np.float64(0.25)],
}


@pytest.mark.parametrize("model", FORMS.values(), ids=FORMS)
def test_a_model_comes_back_as_it_was(model):
    form = ModelForm.of(model)
    again = form.model(form.arrays(model))
    assert type(again) is type(model)
    entries, wanted = (dict(m) if isinstance(m, dict) else {"": m} for m in (again, model))
    assert list(entries) == list(wanted)
    for name, entry in wanted.items():
        pairs = zip(entry, entries[name], strict=True) if isinstance(entry, list | tuple) else [(entry, entries[name])]
        for before, after in pairs:
            assert np.asarray(after).dtype == np.asarray(before).dtype
            assert np.array_equal(after, before)


@pytest.mark.parametrize("model", FORMS.values(), ids=FORMS)
def test_what_is_copied_shares_no_memory(model):
    form = ModelForm.of(model)
    taken, built, other = form.arrays(model), form.model(form.arrays(model)), form.model(form.arrays(model))
    parts = [list(m.values()) if isinstance(m, dict) else list(m) for m in (model, built, other)] + [taken]
    arrays = [[part for part in group if isinstance(part, np.ndarray)] for group in parts]
    for first, second in itertools.combinations(arrays, 2):
        assert not any(np.shares_memory(a, b) for a in first for b in second)


def test_arrays_of_any_layout_and_real_type_are_taken():
    """Non-contiguous, transposed, read-only, of any byte order, half and long precision, nested lists."""
    grid = np.arange(12.0).reshape(3, 4)
    fixed = grid.copy()
    fixed.flags.writeable = False
    for model in (grid[:, ::2], grid.T, np.asfortranarray(grid), fixed, grid.astype(">f8"), grid.astype(np.longdouble)):
        (array,) = named_arrays([model]).values()
        assert array.flags.c_contiguous
        assert array.dtype == np.float64
        assert np.array_equal(array, model)
    assert named_arrays([np.float16([0.5, 2.0])])["array 0"].tolist() == [0.5, 2.0]
    assert named_arrays([[[1, 2], [3, 4]]])["array 0"].shape == (2, 2)


@pytest.mark.parametrize(
    ("model", "named"),
    [
        ([np.array([1 + 2j])], "array 0 holds complex128"),
        ([np.zeros(2), np.array([object()])], "array 1 holds object"),
        ({"w": np.array(["1.0"])}, "w holds <U3"),
        ({"w": None}, "w is a NoneType"),
        ({"layer": {"w": np.zeros(2)}}, "layer is a dict"),
        ({3: np.zeros(2)}, "entry 3"),
        ([[1.0], [1.0, [2.0]]], "array 1 is not an array"),
        ([np.zeros((0, 3))], r"array 0 has the shape \(0, 3\)"),
        ({"when": np.array(["2026-01-01"], dtype="datetime64[D]")}, "when holds datetime64"),
        ([np.ma.masked_array([1.0, 2.0], mask=[True, False])], "array 0 is a MaskedArray"),
        ({"steps": np.array(3)}, "nothing that can be averaged"),
        ([], "nothing that can be averaged"),
        ("weights", "array 0 is a str"),
    ],
)
def test_what_cannot_be_taken_is_named(model, named):
    with pytest.raises(EncodingError, match=named):
        named_arrays(model)


def test_integers_outside_a_dictionary_are_not_cut_off_in_silence():
    """An average of integers would come back as integers."""
    with pytest.raises(EncodingError, match=r"array 1 holds integers.*astype"):
        ModelForm.of([np.zeros(2), np.array([1, 2])])


def test_counts_in_a_dictionary_are_not_averaged():
    form = ModelForm.of({"w": np.zeros(2), "steps": np.array(3), "on": True})
    assert (form.shape.names, form.kept) == (("w",), ("steps", "on"))
    own = form.counts({"w": np.ones(2), "steps": np.array(9), "on": False})
    assert form.model([np.ones(2)], own) == {"w": pytest.approx(np.ones(2)), "steps": 9, "on": False}
    assert form.model([np.ones(2)])["steps"] == 3


def test_a_model_of_another_form_is_named():
    form = ModelForm.of({"w": np.zeros(2), "b": np.zeros(1)})
    assert [array.tolist() for array in form.arrays({"b": [3], "w": [1, 2]})] == [[1.0, 2.0], [3.0]]
    for model, named in [
        ({"w": np.zeros(2)}, "'b' of shape"),
        ({"w": np.zeros(2), "b": np.zeros(1), "c": np.zeros(1)}, "'c' of shape"),
        ({"w": np.zeros(3), "b": np.zeros(1)}, "'w' has the shape"),
        ([np.zeros(2), np.zeros(1)], "a list where a dictionary"),
    ]:
        with pytest.raises(ModelMismatch, match=named):
            form.arrays(model)
    with pytest.raises(NotFinite, match="b holds NaN"):
        form.arrays({"w": np.zeros(2), "b": [np.nan]})


def test_a_task_without_names_is_a_list_and_any_other_a_dictionary():
    plain = dictionary_form(ModelShape(("array 0", "array 1"), ((2,), ())))
    assert [np.shape(array) for array in plain.model([[1, 2], 3])] == [(2,), ()]
    assert list(dictionary_form(ModelShape(("w", "array 1"), ((2,), ()))).model([[1, 2], 3])) == ["w", "array 1"]


def test_tensors_without_torch_are_said_to_need_it(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "torch", None)
    with pytest.raises(LearningUnavailable, match=r"crowdfl\[learning\]"):
        dictionary_form(ModelShape(("w",), ((2,),)), torch=True)


@pytest.mark.second
class TestTensors:
    @pytest.fixture
    def torch(self):
        return pytest.importorskip("torch")

    @pytest.fixture
    def network(self, torch):
        return torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))

    def test_a_state_dict_comes_back_and_loads(self, torch, network):
        state = network.state_dict()
        form = ModelForm.of(state)
        assert form.kept == ("1.num_batches_tracked",)
        built = form.model([array + 1 for array in form.arrays(state)])
        assert type(built) is type(state)
        assert built._metadata == state._metadata
        assert [t.dtype for t in built.values()] == [t.dtype for t in state.values()]
        network.load_state_dict(built)
        assert torch.equal(network[0].bias, built["0.bias"])

    def test_parameters_that_require_grad_are_taken_and_come_back_so(self, torch, network):
        parameters = list(network.parameters())
        form = ModelForm.of(parameters)
        built = form.model(form.arrays(parameters))
        assert all(isinstance(one, torch.nn.Parameter) and one.requires_grad for one in built)
        (leaf,) = ModelForm.of([torch.ones(2, requires_grad=True)]).model([np.zeros(2)])
        (leaf * 2).sum().backward()
        assert leaf.grad.tolist() == [2.0, 2.0]

    def test_small_floats_views_and_results_of_a_graph_are_taken(self, torch):
        base = torch.arange(6.0, requires_grad=True).reshape(2, 3)
        for tensor in (base.bfloat16(), base.half(), base.t(), base[:, ::2], base * 2, base.double()):
            (array,) = named_arrays([tensor]).values()
            assert np.array_equal(array, tensor.detach().double().numpy())
            assert ModelForm.of([tensor]).model([array])[0].dtype == tensor.dtype

    def test_tensors_that_cannot_be_taken_are_named(self, torch):
        for tensor, named in [
            (torch.eye(2).to_sparse(), "sparse"),
            (torch.ones(2, dtype=torch.complex64), "complex64"),
            (torch.ones(2, device="meta"), "meta"),
        ]:
            with pytest.raises(EncodingError, match=f"array 0.*{named}"):
                named_arrays([tensor])
        with pytest.raises(EncodingError, match=r"Linear is a module.*state_dict"):
            named_arrays(torch.nn.Linear(2, 2))

    def test_a_file_of_a_state_dict_loads_strictly_with_every_type_it_had(self, torch):
        """Also what holds no number, and bfloat16, which NumPy lacks; one's own files are read again."""
        state = {
            "w": torch.tensor([1.5, -2.25], dtype=torch.bfloat16),
            "none": torch.zeros(0),
            "steps": torch.tensor(3),
        }
        from safetensors.torch import load  # it needs torch

        form = ModelForm.of(state)
        assert (form.shape.names, form.kept) == (("w",), ("none", "steps"))
        built = form.model(form.arrays(state))
        loaded = load(model_safetensors(built))
        assert {name: (t.dtype, t.tolist()) for name, t in loaded.items()} == {
            name: (t.dtype, t.tolist()) for name, t in state.items()
        }
        for read in (read_arrays(model_safetensors(built), ".safetensors"), read_arrays(model_npz(built), ".npz")):
            assert {name: array.tolist() for name, array in read.items()} == {"w": [1.5, -2.25]}

    def test_a_task_of_tensors_hands_out_float32(self, torch):
        built = dictionary_form(ModelShape(("w",), ((2,),)), torch=True).model([[0.5, 1.5]])
        assert built["w"].dtype == torch.float32
