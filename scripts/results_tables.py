"""Write the tables of README.md and docs/results.md from the records in docs/results: results_tables.py [--check]

A table stands between two comments, and the first names the runs:

    <!-- compare RUN ... -->            what `quasirnn compare docs/results/RUN ... --markdown` prints
    <!-- test RUN[=PAPER] ... -->       a row for each run, with its test result and what the paper reports
    <!-- epochs FIGURE RUN ... -->      a validation figure after each of the first ten epochs, and of every sixth later
                                        where there are more than twenty
    <!-- head-to-head RUN RUN BENCH --> what `quasirnn compare RUN RUN --head-to-head` prints; the speed is that of
                                        docs/results/bench/BENCH.json, which `quasirnn bench task` wrote
    <!-- end -->

With --check nothing is written, and the exit code is 1 if a table differs from the records.
"""

import json
import re
import sys
from pathlib import Path

from quasirnn.tasks import head_to_head
from quasirnn.tasks.comparison import Entry, as_markdown, compare, digits, read_entry, table
from quasirnn.tasks.run_folder import open_run

ROOT = Path(__file__).resolve().parents[1]
PAGES = (ROOT / "README.md", ROOT / "docs" / "results.md")
RECORDS = ROOT / "docs" / "results"
BLOCK = re.compile(r"(<!-- (compare|test|epochs|head-to-head) ([^>]+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)


def entry(name: str) -> Entry:
    return read_entry(open_run(RECORDS / name))


def test_table(runs: list[str], page: Path) -> list[list[str]]:
    """A row for each run, whatever its task."""
    lines = [["run", "corpus", "model", "parameters", "epochs", "minutes", "result on test", "the paper's"]]
    for run in runs:
        name, _, paper = run.partition("=")
        record = entry(name)
        figure = record.task.compared[0] if record.task.name != "translation" else "bleu"
        path = (RECORDS / name).relative_to(page.parent)
        row = compare([record])[0]
        shown = dict(zip(*table([row]), strict=True))
        result = f"{figure} {record.test[figure]:.{digits(figure)}f}"
        corpus = str(record.training.corpus["name"])
        minutes = f"{float(shown['minutes']):.0f}"
        model = f"{row.label}, `{record.training.preset}`"
        lines.append([f"[{name}]({path})", corpus, model, shown["parameters"], shown["epochs"], minutes, result, paper])
    return lines


def epoch_table(figure: str, runs: list[str]) -> list[list[str]]:
    """A column for each epoch at whose end the run was validated."""
    curves = {
        name: {
            round(each["step"] / record.steps_per_epoch): each[figure]
            for each in record.records
            if each["event"] == "valid" and round(each["step"] / record.steps_per_epoch, 2).is_integer()
        }
        for name, record in ((name, entry(name)) for name in runs)
    }
    last = max(max(curve, default=0) for curve in curves.values())
    epochs = [epoch for epoch in range(1, last + 1) if last <= 20 or epoch <= 10 or epoch % 6 == 0 or epoch == last]
    decimals = digits(figure)
    rows = [[name, *(f"{c[e]:.{decimals}f}" if e in c else "" for e in epochs)] for name, c in curves.items()]
    return [["run", *map(str, epochs)], *rows]


def head_to_head_table(first: str, second: str, bench: str) -> list[list[str]]:
    """Two runs after equal epochs, in equal time at the speed that was measured, and on test."""
    summary = json.loads((RECORDS / "bench" / f"{bench}.json").read_text(encoding="utf-8"))["summary"]
    (speed,) = (each["value"] for each in summary if each["what"].endswith("all steps together"))
    entries = entry(first), entry(second)
    return head_to_head.table(*entries, head_to_head.head_to_head(*entries, speed))


def written(page: Path) -> str:
    """The page with its tables made anew."""

    def block(match: re.Match[str]) -> str:
        kind, words = match[2], match[3].split()
        if kind == "compare":
            lines = table(compare([entry(name) for name in words]))
        elif kind == "head-to-head":
            lines = head_to_head_table(*words)
        else:
            lines = test_table(words, page) if kind == "test" else epoch_table(words[0], words[1:])
        return match[1] + "\n".join(as_markdown(lines)) + "\n" + match[5]

    return BLOCK.sub(block, page.read_text(encoding="utf-8"))


def main() -> None:
    differs = [page for page in PAGES if written(page) != page.read_text(encoding="utf-8")]
    for page in differs:
        if "--check" in sys.argv[1:]:
            sys.exit(f"{page.name}: a table differs from the records; run scripts/results_tables.py")
        page.write_text(written(page), encoding="utf-8")


if __name__ == "__main__":
    main()
