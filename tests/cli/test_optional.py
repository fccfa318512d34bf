"""Without the optional packages: what needs none of them runs, the rest says in one line which pip command helps."""

import json
import re
import tomllib
from pathlib import Path

import pytest

from processes import run_with_torch

ROOT = Path(__file__).parents[2]
RUNS = ROOT / "tests/golden/runs"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
# For work on the package itself.
NOT_FOR_USERS = ("docs", "browser", "dev")
GROUPS = {name: group for name, group in PROJECT["optional-dependencies"].items() if name not in NOT_FOR_USERS}
PACKAGES = {re.match(r"[\w-]+", each)[0] for group in GROUPS.values() for each in group}
CLASSIFIER, LM, TRANSLATOR = (str(RUNS / f"{task}-qrnn") for task in ("sentiment", "language-model", "translation"))
# What is typed, and the group that it names; None where nothing optional is needed.
TYPED = {
    ("doctor",): None,
    ("classify", CLASSIFIER, "a good story"): None,
    ("generate", LM, "--length", "3"): None,
    ("translate", TRANSLATOR, "zwei"): None,
    ("quantize", CLASSIFIER, "--out", "int8"): None,
    ("train", "sentiment", "--out", "sentiment"): "train",
    ("train", "language-model", "--out", "lm"): "train",
    ("train", "translation", "--out", "translation"): "train demo translate",
    ("plot", "curves", CLASSIFIER): "plot",
    ("plot", "states", CLASSIFIER, "a good story"): "plot",
    ("plot", "attention", TRANSLATOR, "zwei"): "plot",
    ("bench", "layer", "--quick", "--plot", "picture.png"): "plot",
    ("bench", "onnx", "--quick"): "onnx",
    ("export", CLASSIFIER, "--onnx", "model.onnx"): "onnx",
    ("serve", CLASSIFIER): "serve",
}
PROGRAM = """
import contextlib, importlib.machinery, io, json, sys, warnings

warnings.simplefilter("ignore")

class Bare(importlib.machinery.PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.split(".")[0] in PACKAGES else super().find_spec(name, path, target)

PACKAGES, typed = set(json.loads(sys.argv[1])), json.loads(sys.argv[2])
assert not PACKAGES & sys.modules.keys()
sys.meta_path[sys.meta_path.index(importlib.machinery.PathFinder)] = Bare
from quasirnn.cli.main import main

found = []
for words in typed:
    sys.argv = ["quasirnn", *words]
    out, err, code = io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
        except SystemExit as end:
            code = end.code or 0
        except Exception as error:
            code = f"{type(error).__name__}: {error}"
    found.append((code, out.getvalue(), err.getvalue()))
try:
    import quasirnn.hf
    hf = ""
except ImportError as error:
    hf = str(error)
print(json.dumps({"found": found, "hf": hf}))
"""


@pytest.fixture(scope="module")
def without(tmp_path_factory):
    """Every command of TYPED, one after the other, in a process that has none of the optional packages."""
    words = json.dumps(sorted(PACKAGES)), json.dumps(list(TYPED))
    result = run_with_torch(PROGRAM, *words, cwd=tmp_path_factory.mktemp("bare"))
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout.splitlines()[-1])


def test_what_is_installed_without_asking():
    assert {re.match(r"[\w-]+", each)[0] for each in PROJECT["dependencies"]} == {
        "torch", "numpy", "safetensors", "typer", "pydantic",
    }  # fmt: skip


@pytest.mark.parametrize("number", range(len(TYPED)), ids=[" ".join(Path(w).name for w in words) for words in TYPED])
def test_a_command_runs_or_names_the_pip_command(without, number):
    groups = list(TYPED.values())[number]
    code, _, told = without["found"][number]
    if groups is None:
        assert code == 0, (code, told)
        return
    assert code == 2, (code, told)
    # Above it may stand a note about the run, which is an old one.
    (line,) = [line for line in told.splitlines() if line.startswith("quasirnn: ")]
    assert re.search(rf"pip install 'quasirnn\[({'|'.join(groups.split())})\]'$", line), told


def test_hugging_face_names_the_pip_command(without):
    assert without["hf"] == "quasirnn.hf needs transformers: pip install 'quasirnn[hf]'"
