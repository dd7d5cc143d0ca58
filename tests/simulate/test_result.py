"""What a simulation's result shows: a table as text and in a notebook, rows, a picture, a file; and progress on the way."""

import itertools
import re
import sys
from types import SimpleNamespace

import numpy as np
import pytest

import crowdfl
from crowdfl.errors import PackageMissing, SettingsError
from crowdfl.simulation.shown import Bar, Lines, Pictured, Shown, shown
from tests.simulate.lines import START, evaluate, people, train

UNCHECKED = {"check": "none"}  # what is shown of a simulation is the same


def run(**given):
    usual = {"rounds": 2, "initial": START, "progress": False, "dropouts": {"p3": 1}} | UNCHECKED
    return crowdfl.simulate(train, evaluate, people(), **usual | given)


@pytest.fixture(scope="module")
def result():
    return run()


def test_printed_it_is_a_table_of_the_rounds(result):
    head, first, second, decimals = str(result).splitlines()
    assert decimals == "averages are exact to 9 decimals"
    assert head.split() == ["round", "participants", "dropped", "loss", "seconds", "up", "down"]
    assert first.split()[:3] == ["1", "3", "1"]
    assert second.split()[:3] == ["2", "4", "0"]
    assert repr(result).splitlines()[1:] == str(result).splitlines()


def test_a_notebook_renders_a_table(result):
    page = result._repr_html_()
    assert page.count("<tr>") == 3
    assert "<th>loss</th>" in page
    assert "<p>round 1: p0, p1, p2 had weights clipped" in run(rounds=1, clip=0.001)._repr_html_()


def test_names_of_metrics_cannot_write_into_a_notebook():
    page = crowdfl.simulate(
        train, lambda *_: {"<b>": 1.0}, people(), rounds=1, initial=START, progress=False, **UNCHECKED
    )._repr_html_()
    assert "<b>" not in page


def test_rows_are_flat_numbers(result):
    rows = result.rows()
    assert [row["round"] for row in rows] == [1, 2]
    assert all(isinstance(value, int | float) for row in rows for value in row.values())
    assert rows[0]["bytes_up"] > 0 < rows[0]["bytes_down"]


def test_a_model_is_saved_as_npz_and_safetensors(result, tmp_path):
    for path in (tmp_path / "m.npz", str(tmp_path / "m.safetensors")):
        written = result.save(path)
        loader = np.load if written.suffix == ".npz" else __import__("safetensors.numpy", fromlist=["x"]).load_file
        arrays = loader(written)
        assert sorted(arrays) == ["array 0", "array 1"]
        assert np.array_equal(arrays["array 0"], result.model[0])
        assert arrays["array 1"].shape == ()  # safetensors would make it (1,)
    with pytest.raises(SettingsError, match=r"\.pt"):
        result.save(tmp_path / "m.pt")


def test_a_picture_shows_metrics_and_participants(result, tmp_path):
    """One for each metric, and one for people."""
    pytest.importorskip("matplotlib")
    figure = result.plot(tmp_path / "history.png")
    assert (tmp_path / "history.png").stat().st_size > 1000
    assert [axes.get_ylabel() for axes in figure.axes] == ["loss", "participants"]
    assert figure._repr_png_().startswith(b"\x89PNG")  # as a notebook shows it
    with pytest.raises(SettingsError, match="cannot be written"):
        result.plot(tmp_path / "no" / "folder.png")


def test_without_matplotlib_it_says_what_to_install(result, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(PackageMissing, match=r"crowdfl\[plots\]"):
        result.plot()


def test_progress_is_a_line_for_each_round_where_it_was_asked_for(capsys):
    """On standard error, in order; nothing in a pipe otherwise."""
    run(progress=True)
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(":")[0] for line in lines] == ["round 1 of 2", "round 2 of 2"]
    assert "3 took part, 1 dropped, loss" in lines[0]
    assert re.search(r" s, about \d+ s left$", lines[0])
    assert "left" not in lines[1]
    run(progress=None)
    assert capsys.readouterr() == ("", "")


def test_progress_fits_where_it_is_shown(monkeypatch):
    """A bar on a terminal, a line and a picture in a notebook."""
    assert isinstance(shown(None, 3, 2), Shown)
    assert isinstance(shown(True, 3, 2), Lines)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert isinstance(shown(None, 3, 2), Bar)
    assert type(shown(False, 3, 2)) is Shown


def test_a_bar_counts_trainings_and_leaves_lines(monkeypatch, capsys):
    monkeypatch.setattr("crowdfl.simulation.run.shown", lambda _progress, people, rounds: Bar(people, rounds))
    run()
    told = capsys.readouterr().err
    assert told.count("took part") == 2


def test_a_notebook_shows_a_line_and_a_picture_that_change(monkeypatch):
    """By IPython's own display, if it is there."""
    told, pictures = [], []

    def update(data, raw):
        assert raw
        told.append(data["text/plain"])
        pictures.append(data["text/html"])

    handle = SimpleNamespace(update=update)
    shell = type("ZMQInteractiveShell", (), {})()
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    monkeypatch.setitem(sys.modules, "IPython.display", SimpleNamespace(display=lambda *_a, **_k: handle))
    assert isinstance(shown(None, 3, 2), Pictured)
    run(progress=None)
    assert told[0] == "round 1 of 2: 1 of 4 have trained"
    assert told[-1].startswith("round 2 of 2: 4 took part")
    assert all(before != after for before, after in itertools.pairwise(told))
    assert "0 of 2 rounds are over" in pictures[0]
    assert "2 of 2 rounds are over" in pictures[-1]
    assert len(re.search('points="([^"]+)"', pictures[-1])[1].split()) == 2  # the loss of each round
