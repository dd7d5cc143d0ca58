"""The one reporter: figures, tables in four forms, pictures, and the files of a result."""

import csv
import io
import json

import pytest
from rich.console import Console

from crowdfl_lab.report import output, plots
from crowdfl_lab.report.output import csv_text, markdown_table, page_html, rich_tables, section_html
from crowdfl_lab.report.plots import Picture, Series
from crowdfl_lab.report.results import Figure, Reference, Result, ResultTable, Row, Target, cell_text

TABLE = ResultTable(
    "Costs | of all",
    ("system", "time", "count", "met"),
    (("a | b", Figure(0.0015, "s", "3 values"), 4, "yes"), ("[c]", None, 5, "no")),
    note="one *note*",
    colours={"yes": "green"},
)
WORDS = ResultTable(
    "Wide",
    ("", "quantity", "explanation", "verdict"),
    tuple((str(n), "transformation of everything", "a sentence of several words " * 3, "as stated") for n in range(2)),
)
MANY = ResultTable("Many", ("key", *(f"heading-{n}" for n in range(12))), (("k1", *range(1000, 1012)),), note="the end")


def shown(table: ResultTable, width: int = 120) -> str:
    console = Console(width=width, file=io.StringIO(), record=True)
    for part in rich_tables(table, width):
        console.print(part)
    return console.export_text()


def sketch(canvas) -> None:
    """One diagram of each kind."""
    axes = plots.panels(canvas, 4, rows=2)
    series = {"a": Series((1, 2, 3), (1, 4, 9), (0.1, 0.2, 0.3)), "b": Series((1, 2, 3), (2, 3, 4))}
    plots.lines(axes[0], series, log=True, xlabel="x", ylabel="y")
    plots.lines(axes[1], {"marks": Series((1, 2), (3, 4), style="o")}, title="points")
    plots.bars(axes[2], ("one", "two"), {"a": (1, 2), "b": (3, 4)}, ylabel="height")
    plots.bars(axes[3], ("one", "two"), {"a": (1, 2), "b": (3, 4)}, stacked=True)


@pytest.fixture
def result() -> Result:
    """A small one with everything in it."""
    row = Row("r", "speed", Figure(2.0, "s"), Target(">= 2", "ratio", at_least=2)).under(
        Reference("p", Figure(4.0, "s")), "p / ours"
    )
    return Result(
        "small",
        "A small run",
        {"cores": 2},
        {"sizes": {"n": 3}, "list": [1, 2]},
        rows=(row,),
        tables=(TABLE,),
        notes=("see `crowdfl bench`",),
        pictures=(Picture("small", "<all> kinds", sketch),),
        data={"extra": 1},
        command="crowdfl bench small",
    )


def test_a_terminal_shows_every_cell_as_it_is():
    """Brackets are no markup, a missing cell is a dash."""
    text = shown(TABLE)
    assert all(part in text for part in ("a | b", "1.5 ms *", "[c]", " - ", "one *note*"))


@pytest.mark.parametrize("table", [WORDS, MANY], ids=["long words", "many columns"])
@pytest.mark.parametrize("width", [50, 80, 100])
def test_lines_break_between_words_and_nothing_is_lost(table, width):
    """Columns that do not fit beside each other are shown one below the other, by name."""
    text = shown(table, width)
    assert max(map(len, text.splitlines())) <= width
    cells = [*table.columns, *(cell_text(cell) for row in table.rows for cell in row), table.note]
    assert [word for cell in cells for word in cell.split() if word not in text.split()] == []


def test_what_fits_is_one_table():
    assert shown(MANY, 200).count("k1") == 1
    narrow = [line.split() for line in shown(MANY, 80).splitlines()]
    assert ["key", "k1"] in narrow
    assert ["heading-3", "1003"] in narrow


def test_markdown_escapes_what_would_end_a_cell():
    lines = markdown_table(TABLE).splitlines()
    assert "| a \\| b | 1.5 ms \\* | 4 | yes |" in lines
    assert lines[-1] == "one \\*note\\*"


def test_csv_holds_numbers_in_their_base_unit():
    assert list(csv.reader(io.StringIO(csv_text(TABLE))))[1:] == [
        ["a | b", "0.0015", "4", "yes"],
        ["[c]", "", "5", "no"],
    ]


def test_records_become_a_table_with_every_name_that_occurs():
    table = ResultTable.of_records("t", [{"a": 1}, {"b": 2.0, "a": None}])
    assert table.columns == ("a", "b")
    assert table.rows == ((1, None), (None, 2.0))


def test_the_same_picture_gives_the_same_files(result, tmp_path):
    (tmp_path / "again").mkdir()
    first = plots.save_picture(result.pictures[0], tmp_path)
    second = plots.save_picture(result.pictures[0], tmp_path / "again")
    assert [path.suffix for path in first] == [".png", ".svg"]
    assert first[1].read_bytes() == second[1].read_bytes()


def test_what_a_section_holds_is_escaped_and_backticks_become_code():
    made = Result("s", "<b>", {}, {}, tables=(TABLE,), notes=("<script>",), command="`x`")
    section = section_html(made, intro="run `a<b`", pictures={"<i>": "iVBORw=="})
    page = page_html("title & more", ("intro",), [section])
    assert "<code>a&lt;b</code>" in page
    assert "<script>" not in page
    assert "title &amp; more" in page
    assert "data:image/png;base64,iVBORw==" in page
    assert "<dt>Command</dt><dd><code>x</code></dd>" in page


def test_rows_come_first_and_are_judged(result):
    assert [table.title for table in result.all_tables] == ["A small run", "Costs | of all"]
    assert result.all_tables[0].rows[0][-1] == "yes"
    assert result.facts["settings"] == "n 3, list (1, 2)"


def test_files_of_every_form_are_written(result, tmp_path):
    """JSON with rows, tables and what is extra; a page; Markdown; pictures."""
    written = {path.suffix: path for path in output.write_files(result, tmp_path / "out")}
    assert set(written) == {".json", ".md", ".csv", ".html", ".png", ".svg"}
    found = json.loads(written[".json"].read_text())
    assert found["rows"][0]["met"] is True
    assert found["tables"][0]["rows"][0][1] == {"value": 0.0015, "unit": "s", "sample": "3 values"}
    assert found["extra"] == 1
    assert "# A run of `crowdfl bench small`" in written[".md"].read_text()
    assert "&lt;all&gt; kinds" in written[".html"].read_text()


def test_json_is_alone_on_stdout(result, capsys):
    output.deliver(result, as_json=True)
    assert json.loads(capsys.readouterr().out)["title"] == "A small run"
    output.deliver(result)
    assert "cores 2" in capsys.readouterr().out
