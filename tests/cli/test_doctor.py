import json
import os
import platform

import torch

from cli.command import as_json, here
from processes import run_with_torch


def test_doctor_tells_versions_machine_and_back_end():
    result = here("doctor")
    assert result.code == 0, result.stderr
    for words in (platform.python_version(), torch.__version__, "CPU ", "runs on cpu", "fo-pooling is correct"):
        assert words in result.stdout


def test_doctor_json_is_one_object_and_nothing_else():
    findings = as_json("doctor")
    assert findings["versions"]["torch"] == torch.__version__
    assert findings["cpu"]["threads"] == 1
    assert findings["backends"]["cpu"]["backend"] in ("kernels", "plain")
    assert findings["self_check"]["ok"] is True
    assert findings["self_check"]["cpu"]["error"] <= findings["self_check"]["cpu"]["allowed"]


# What is chosen when the package is imported needs a process of its own.
COMMAND = "from quasirnn.cli.main import main; main()"


def test_doctor_says_why_the_kernels_do_not_run():
    result = run_with_torch(COMMAND, "doctor", env=os.environ | {"QUASIRNN_BACKEND": "plain"})
    assert result.returncode == 0, result.stderr
    assert "QUASIRNN_BACKEND=plain" in result.stdout
    assert "fo-pooling is correct" in result.stdout


def test_doctor_reports_kernels_that_do_not_load(tmp_path):
    broken = tmp_path / "_kernels.abi3.so"
    broken.write_bytes(b"not a library")
    result = run_with_torch(COMMAND, "doctor", "--json", env=os.environ | {"QUASIRNN_KERNELS": str(broken)})
    assert result.returncode == 0
    findings = json.loads(result.stdout)
    assert findings["backends"]["cpu"]["backend"] == "plain"
    assert findings["self_check"]["ok"] is True
