import json
from pathlib import Path
from typing import Any

import pytest

from golden.cases import CORPORA
from golden.command import VALUES, machine, quasirnn
from golden.corpora import write_all


@pytest.fixture(scope="session")
def workshop(tmp_path_factory) -> Path:
    """A folder that has `corpora/`."""
    folder = tmp_path_factory.mktemp("golden")
    write_all(folder / "corpora")
    return folder


@pytest.fixture
def in_workshop(workshop, monkeypatch) -> Path:
    """The present folder: the golden runs name their data from there."""
    monkeypatch.chdir(workshop)
    return workshop


@pytest.fixture(scope="session")
def values() -> dict[str, Any]:
    return json.loads(VALUES.read_text())


@pytest.fixture
def same_machine(in_workshop, values) -> bool:
    """Whether sums are rounded here as they were where the values were made: then every bit is compared."""
    run = Path("which-machine")
    if not run.exists():
        quasirnn(*CORPORA["language-model-ptb"].command, "--out", str(run))
    return machine(run) == values["machine"]
