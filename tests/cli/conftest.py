"""The command as a user runs it: another process, through the installed script."""

import os
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
            timeout=300,
        )

    return run
