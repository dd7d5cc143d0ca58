"""crowdfl.partition: a data set dealt out to people. Nothing is lost, nothing is dealt twice, and everyone has something."""

import sys

import numpy as np
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

import crowdfl
from crowdfl import partition
from crowdfl.errors import SettingsError
from crowdfl.learning.functions import samples_of
from tests import subprocesses

WAYS = {
    "iid": partition.iid,
    "dirichlet": partition.dirichlet,
    "uneven": lambda data, people, **more: partition.dirichlet(data, people, 0.05, **more),
    "shards": partition.shards,
}


@given(st.sampled_from(sorted(WAYS)), st.lists(st.integers(0, 4), max_size=60), st.integers(1, 9), st.integers(0, 99))
def test_everything_is_dealt_once_to_everyone_or_it_says_why_not(way, labels, people, seed):
    data = np.arange(len(labels)), np.array(labels, dtype=np.int64)
    try:
        found = WAYS[way](data, people, seed=seed)
    except SettingsError as refused:
        event("too few" if "too few" in str(refused) else "drawn in vain")
        found = None
    if found is None:
        assert way in ("dirichlet", "uneven") or len(labels) < (2 * people if way == "shards" else people)
        return
    assert list(found) == [f"person-{number}" for number in range(1, people + 1)]
    assert sorted(place for own in found.values() for place in own[0].tolist()) == list(range(len(labels)))
    assert all(len(own[0]) for own in found.values())
    assert all(np.array_equal(own[1], data[1][own[0]]) for own in found.values())  # inputs keep their labels
    again = WAYS[way](data, people, seed=seed)
    assert all(np.array_equal(found[name][0], again[name][0]) for name in found)


@given(st.lists(st.sampled_from(["ada", "bob", "eve"]), min_size=1, max_size=40))
def test_a_column_deals_everyone_their_own(owners):
    found = partition.by_column(np.arange(len(owners)), owners)
    assert {name: own.tolist() for name, own in found.items()} == {
        name: [place for place, owner in enumerate(owners) if owner == name] for name in sorted(set(owners))
    }


def test_each_way_is_as_uneven_as_it_says():
    labels = np.repeat(np.arange(10), 100)
    data = np.arange(1000), labels

    def kinds(found):
        return np.mean([len(set(own[1].tolist())) for own in found.values()])

    assert kinds(partition.iid(data, 10)) == 10
    assert kinds(partition.shards(data, 10)) <= 4  # two pieces, each of at most two labels
    assert kinds(partition.dirichlet(data, 10, 0.1)) < kinds(partition.dirichlet(data, 10, 100.0)) == 10
    assert partition.iid(data, 10, seed=1)["person-1"][0].tolist() != partition.iid(data, 10)["person-1"][0].tolist()


class Rows:
    """As a data set of the library `datasets` is used: columns by name, and `select`."""

    def __init__(self, columns):
        self.columns, self.column_names = columns, list(columns)

    def __len__(self):
        return len(next(iter(self.columns.values())))

    def __getitem__(self, name):
        return self.columns[name]

    def select(self, places):
        return Rows({name: [column[place] for place in places] for name, column in self.columns.items()})


def test_people_get_what_the_whole_is():
    """A pair, a Bunch, arrays, lists, columns; labels are found where such data has them."""
    inputs, labels = np.arange(12.0).reshape(6, 2), np.array([0, 0, 0, 1, 1, 1])
    pair = partition.shards((inputs, labels), 3, 1)
    assert {name: own[0].shape for name, own in pair.items()} == dict.fromkeys(pair, (2, 2))
    bunch = {"data": inputs, "target": labels, "DESCR": "as of scikit-learn"}
    same = partition.shards(bunch, 3, 1)
    assert all(np.array_equal(same[name][0], pair[name][0]) for name in pair)
    rows = partition.shards(Rows({"text": list("abcdef"), "label": labels.tolist()}), ["ada", "bob", "eve"], 1)
    assert sorted(letter for own in rows.values() for letter in own["text"]) == list("abcdef")
    assert samples_of(rows["ada"]) == 2
    by_name = partition.by_column(Rows({"text": list("abcdef"), "who": list("xxyyyz")}), "who")
    assert {name: own["text"] for name, own in by_name.items()} == {"x": ["a", "b"], "y": ["c", "d", "e"], "z": ["f"]}
    with pytest.raises(SettingsError, match="of several splits, give one"):
        partition.iid({"train": Rows({"text": list("ab")}), "test": Rows({"text": list("ab")})}, 2)
    assert sorted(letter for own in partition.iid(list("abcdef"), 2).values() for letter in own) == list("abcdef")


def test_real_objects_of_scikit_learn_and_torch():
    datasets, torch = pytest.importorskip("sklearn.datasets"), pytest.importorskip("torch")
    iris = partition.dirichlet(datasets.load_iris(), 4, seed=3)
    assert sum(len(labels) for _inputs, labels in iris.values()) == 150
    whole = torch.utils.data.TensorDataset(torch.arange(20.0), torch.arange(20) % 2)
    found = partition.shards(whole, 5)
    assert sorted(float(own[place][0]) for own in found.values() for place in range(len(own))) == list(range(20))
    assert [samples_of(own) for own in found.values()] == [4] * 5  # not the whole data set's
    assert samples_of(torch.utils.data.DataLoader(found["person-1"], batch_size=3)) == 4
    tensors = partition.iid((torch.zeros(9, 2), torch.arange(9)), 3)
    assert all(isinstance(own[0], torch.Tensor) for own in tensors.values())


def test_no_library_is_loaded_for_data_that_is_not_its_own():
    code = (
        "import sys, numpy, crowdfl; crowdfl.partition.iid(numpy.arange(9), 3); "
        "print(sorted({'torch', 'sklearn', 'pandas', 'datasets', 'matplotlib'} & set(sys.modules)))"
    )
    done = subprocesses.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_it_is_simulated_as_it_is_and_shows_who_has_what(tmp_path):
    data = np.arange(12.0), np.arange(12) % 3
    people = partition.by_column(data, np.repeat(["ada", "bob", "eve"], [6, 4, 2]))
    assert str(people).splitlines() == [
        "person  samples  0  1  2",
        "   ada        6  2  2  2",
        "   bob        4  2  1  1",
        "   eve        2  0  1  1",
    ]
    assert people._repr_html_().count("<tr>") == 4
    result = crowdfl.simulate(lambda model, own: np.array([own[0].mean()]), None, people, rounds=1, initial=np.zeros(1))
    assert result.model[0] == pytest.approx(5.5)  # weighted by samples
    pytest.importorskip("matplotlib")
    figure = people.plot(tmp_path / "people.png")
    assert (tmp_path / "people.png").stat().st_size > 1000
    assert [one.get_text() for one in figure.axes[0].get_legend().get_texts()] == ["0", "1", "2"]


@pytest.mark.parametrize(
    ("deal", "words"),
    [
        (lambda: partition.iid(np.arange(2), 3), "2 samples are too few for 3 people"),
        (lambda: partition.iid(np.arange(9), 0), "`people` is 0"),
        (lambda: partition.iid(np.arange(9), ["a", "a"]), "different names"),
        (lambda: partition.iid((np.arange(9), np.arange(8)), 3), "8 and 9 samples do not belong together"),
        (lambda: partition.iid(object(), 3), "no number of samples"),
        (lambda: partition.dirichlet(np.arange(9), 3), "goes by labels"),
        (lambda: partition.dirichlet((np.arange(9), np.arange(9)), 3, 0), "`alpha` is 0"),
        (lambda: partition.shards((np.arange(9), np.arange(9)), 5), "too few for 10 pieces"),
        (lambda: partition.shards((np.arange(9), np.arange(9) / 2), 3), "these are measured numbers: take `iid`"),
        (lambda: partition.dirichlet((np.arange(9), np.arange(9) / 2), 3), "these are measured numbers"),
        (lambda: partition.shards((np.arange(9), np.zeros((9, 2))), 3), "one value for each of 9"),
        (lambda: partition.by_column(np.arange(2), [1.0, float("nan")]), "missing values"),
        (lambda: partition.by_column({"text": ["a"]}, "who"), "no column is called so; there are text"),
    ],
)
def test_what_cannot_be_dealt_is_named(deal, words):
    with pytest.raises(SettingsError, match=words):
        deal()
