"""The page of the zoo is what `make zoo` writes: a section written by hand would be lost with the next run."""

from pathlib import Path

from benchmarks.verdicts import zoo_table

PAGE = Path(__file__).parents[3] / "docs" / "zoo.md"


def test_the_generator_writes_every_line_of_the_page_from_its_cells():
    cells = zoo_table._cells_of(PAGE)
    chosen = zoo_table.entries()
    lines = {entry.expected.row: (zoo_table._row(cells[entry.name]), cells[entry.name][-1]) for entry in chosen}
    assert zoo_table._table(chosen, lines) == PAGE.read_text()
    assert "the naive grader on a GPU" in PAGE.read_text()
