"""The command as a user runs it: another process, through the installed script; and trained runs to use it on."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.fixture
def quasirnn(tmp_path):
    """Run `quasirnn ARGUMENTS` in an empty folder, with `environment` added to the present one."""

    def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(Path(sys.executable).with_name("quasirnn")), *arguments],
            cwd=tmp_path,
            env=os.environ | {"OMP_NUM_THREADS": "1", "COLUMNS": "100"} | environment,
            capture_output=True,
            text=True,
            timeout=1800,  # it only keeps a test from hanging for ever
        )

    return run


@pytest.fixture(scope="session")
def tiny_runs(tmp_path_factory):
    """A folder with the runs `word`, `character` and `lstm`, as of `train_runs`. To be left as it is."""
    from tasks.tiny_language_model import train_runs

    return train_runs(tmp_path_factory.getbasetemp() / "language-model")


@pytest.fixture(scope="session")
def tiny_sentiment(tmp_path_factory):
    """A folder with the runs `qrnn`, `lstm` and `three`, as of `train_runs`. To be left as it is."""
    from tasks.tiny_sentiment import train_runs

    return train_runs(tmp_path_factory.getbasetemp() / "sentiment")


@pytest.fixture
def own_run(tiny_runs, tmp_path):
    """A copy of the run of words, to do with as one likes."""
    return Path(shutil.copytree(tiny_runs / "word", tmp_path / "run"))


@pytest.fixture
def own_sentiment(tiny_sentiment, tmp_path):
    """A copy of the classifier of two classes, to do with as one likes."""
    return Path(shutil.copytree(tiny_sentiment / "qrnn", tmp_path / "run"))
