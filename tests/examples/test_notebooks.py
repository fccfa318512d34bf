"""The notebooks run from top to bottom, and are kept with what they print."""

import json
from pathlib import Path

import pytest

NOTEBOOKS = sorted((Path(__file__).parents[2] / "docs/notebooks").glob("*.ipynb"))


def code_cells(notebook: Path) -> list[dict]:
    return [cell for cell in json.loads(notebook.read_text())["cells"] if cell["cell_type"] == "code"]


def test_there_are_two():
    assert [notebook.stem for notebook in NOTEBOOKS] == ["stream-audio", "swap-an-lstm"]


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_outputs_are_kept(notebook):
    cells = code_cells(notebook)
    assert all(cell["execution_count"] for cell in cells)
    assert not [output for cell in cells for output in cell["outputs"] if output["output_type"] == "error"]
    assert any(cell["outputs"] for cell in cells)


@pytest.mark.slow
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_every_cell_runs(notebook, monkeypatch, capsys):
    program = "\n".join("".join(cell["source"]) for cell in code_cells(notebook))
    # Fewer steps: what is learned is not looked at here. And one thread, as in all tests.
    program = program.replace("steps=300", "steps=3").replace("range(1, 151)", "range(1, 3)")
    program = program.replace("set_num_threads(2)", "set_num_threads(1)")
    monkeypatch.chdir(notebook.parent)
    exec(compile(program, notebook.name, "exec"), {"__name__": "__main__"})
    assert "largest difference" in capsys.readouterr().out
