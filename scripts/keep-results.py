"""Keep what a run showed: copy its records into docs/results/RUN and print a table of its epochs.

    .venv/bin/python scripts/keep-results.py runs/lm-paper-qrnn ...

Weights and checkpoints stay where they are. Folders outside the run are shortened to their names.
"""

import json
import re
import shutil
import sys
from pathlib import Path

from quasirnn.tasks.curves import FIXED
from quasirnn.tasks.run_folder import Run, open_run

RESULTS = Path(__file__).parents[1] / "docs" / "results"


def keep(path: Path) -> None:
    run = open_run(path)
    folder = RESULTS / path.name
    folder.mkdir(parents=True, exist_ok=True)
    figures = [file for pattern in ("*.png", "evaluation-*.json", "rows-*.json") for file in path.glob(pattern)]
    for file in (run.metrics, run.environment, run.config, *figures):
        shutil.copyfile(file, folder / file.name)
    training = json.loads(run.training.read_text(encoding="utf-8"))
    for key in ("data", "command", "corpus"):
        training[key] = shorten(training[key])
    (folder / run.training.name).write_text(json.dumps(training, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def shorten(value: object) -> object:
    """Absolute paths in any string inside a value, by their last part."""
    if isinstance(value, str):
        return re.sub(r"/(?:[\w.+-]+/)+([\w.+-]+)", r"\1", value)
    if isinstance(value, list):
        return [shorten(each) for each in value]
    if isinstance(value, dict):
        return {key: shorten(each) for key, each in value.items()}
    return value


def print_epochs(run: Run) -> None:
    """The validations as a table, with whatever figures the task has."""
    valid = [record for record in run.read_metrics() if record["event"] == "valid"]
    figures = [name for name in valid[0] if name not in FIXED] if valid else []
    print(f"\n{run.path.name}\n\n| epoch | step | minutes | {' | '.join(figures)} |\n|{'---:|' * (3 + len(figures))}")
    for record in valid:
        values = " | ".join(f"{record[name]:.5g}" for name in figures)
        print(f"| {record['epoch']} | {record['step']:,} | {record['minutes']:.1f} | {values} |")


def main() -> None:
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    for name in sys.argv[1:]:
        keep(Path(name))
        print_epochs(open_run(name))


if __name__ == "__main__":
    main()
