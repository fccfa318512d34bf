"""The tables of README.md and docs/results.md say what the records in docs/results say."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))

import results_tables


@pytest.mark.parametrize("page", results_tables.PAGES, ids=lambda page: page.name)
def test_tables_are_those_of_the_records(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert results_tables.BLOCK.search(text)
    assert results_tables.written(page) == text, "run scripts/results_tables.py"


def test_a_figure_changed_by_hand_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "results.md"
    page.write_text("<!-- compare lm-fast -->\n| 99.99 |\n<!-- end -->\n", encoding="utf-8")
    monkeypatch.setattr(results_tables, "PAGES", (page,))
    monkeypatch.setattr(sys, "argv", ["results_tables.py", "--check"])
    with pytest.raises(SystemExit, match="differs from the records"):
        results_tables.main()
    monkeypatch.setattr(sys, "argv", ["results_tables.py"])
    results_tables.main()
    assert "101.72" in page.read_text(encoding="utf-8")
