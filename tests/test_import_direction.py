"""Imports go down only: what each folder may know, read from the source of every file."""

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from quasirnn.tasks import registry

SOURCE = Path(__file__).parents[1] / "src" / "quasirnn"
FILES = sorted(SOURCE.rglob("*.py"))

# What everyone may import. These files import nothing of the package but one another.
BASE = ("errors", "files", "schema")
# Options that commands of both folders have: without torch, as commands are.
OPTIONS = "quasirnn.tasks.console"
# Each folder with the folders it may import from, besides itself and the base. The public face of the package,
# `from quasirnn import QRNN`, belongs to nn. docs/architecture.md has the same table.
MAY_IMPORT = {
    "ops": set(),
    "nn": {"ops"},
    "models": {"nn", "ops"},
    "data": set(),
    "training": {"ops"},
    "plots": set(),
    "tasks": {"plots", "models", "data", "training", "nn", "ops"},
    "benchmarks": {"export", "tasks", "plots", "models", "data", "training", "nn", "ops"},
    "serving": {"tasks", "training"},
    "export": {"tasks", "models", "data", "nn", "ops"},
    "cli": {"serving", "export", "benchmarks", "tasks", "plots", "training", "ops"},
}
# These ask a task and know none by name.
GENERIC = ("benchmarks", "cli", "plots", "serving", "training")
TASK_MODULES = tuple(module.rpartition(".")[2] for module in registry.MODULES)
TASK_NAMES = {*TASK_MODULES, *(module.replace("_", "-") for module in TASK_MODULES)}


def imports(file: Path, nodes: Iterator[ast.AST] | None = None) -> Iterator[tuple[int, str]]:
    """Line and absolute dotted name of everything a file imports; `from a import b` gives a.b."""
    for node in nodes or ast.walk(parse(file)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            if node.level:
                # One dot is the folder of the file, each further dot its parent.
                package = ["quasirnn", *file.relative_to(SOURCE).parent.parts]
                module = ".".join([*package[: len(package) - node.level + 1], *filter(None, [module])])
            yield from ((node.lineno, f"{module}.{alias.name}") for alias in node.names)


@functools.cache
def parse(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"), filename=str(file))


def at_import_time(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes that run when the module is imported, so not the bodies of functions and not type-checking blocks."""
    for child in ast.iter_child_nodes(node):
        typing_only = isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test)
        if not typing_only and not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield child
            yield from at_import_time(child)


def folder_of(file: Path) -> str:
    """The folder that a file belongs to; "base", or "" for the public face of the package itself."""
    parts = file.relative_to(SOURCE).parts
    if len(parts) > 1:
        return parts[0]
    return "base" if file.stem in BASE else ""


def folder_named(dotted: str) -> str | None:
    """The folder that an import leads to, "base", or None if it leaves the package."""
    parts = dotted.split(".")
    if parts[0] != "quasirnn":
        return None
    target = parts[1] if len(parts) > 1 else ""
    if target == "_kernels":
        return "ops"
    if target in BASE:
        return "base"
    return target if target in MAY_IMPORT else "nn"


def name(file: Path) -> str:
    return str(file.relative_to(SOURCE))


def test_every_folder_has_its_rule():
    folders = {folder_of(file) for file in FILES} - {"", "base"}
    assert folders == set(MAY_IMPORT), "a new folder needs a line in MAY_IMPORT and in docs/architecture.md"


def imported(*folders: str) -> Iterator[tuple[str, str]]:
    """Where and what the files of some folders, or of all, import."""
    for file in FILES:
        if not folders or folder_of(file) in folders:
            yield from ((f"{name(file)}:{line} imports {dotted}", dotted) for line, dotted in imports(file))


@pytest.mark.parametrize("folder", ["base", *MAY_IMPORT])
def test_imports_go_down_only(folder):
    allowed = {None, "base", folder} | MAY_IMPORT.get(folder, set())
    wrong = [where for where, dotted in imported(folder) if folder_named(dotted) not in allowed]
    assert not wrong, f"{folder} may import from {sorted(MAY_IMPORT.get(folder, ())) or 'no folder'} and the base"


def test_the_documentation_has_the_same_table():
    page = (SOURCE.parents[1] / "docs" / "architecture.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)/` \|.*\| ([^|]*) \|$", page, re.MULTILINE)
    documented = {folder: set(re.findall(r"\w+", what)) for folder, what in rows}
    assert documented == MAY_IMPORT


def literals(file: Path) -> Iterator[tuple[int, str]]:
    """Line and value of every string of a file."""
    for node in ast.walk(parse(file)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value


def test_no_task_is_known_by_name():
    """Sentences of help and docstrings may give examples; a string that is a name, or an import, is a dependency."""
    generic = [file for file in FILES if folder_of(file) in GENERIC]
    named = [(file, line, value) for file in generic for line, value in literals(file) if value.strip() in TASK_NAMES]
    assert not [f"{name(file)}:{line} has {value!r}" for file, line, value in named]
    modules = tuple(f"quasirnn.tasks.{module}" for module in TASK_MODULES)
    assert not [where for where, dotted in imported(*GENERIC) if dotted.startswith(modules)]


def test_the_public_face_loads_ops_and_nn_only():
    face = SOURCE / "__init__.py"
    loaded = {folder_named(dotted) for _, dotted in imports(face, at_import_time(parse(face)))} - {None, "base"}
    assert loaded <= {"ops", "nn"}


def test_commands_load_torch_only_when_they_run():
    for file in [file for file in FILES if folder_of(file) == "cli"]:
        for line, dotted in imports(file, at_import_time(parse(file))):
            light = folder_named(dotted) in (None, "cli", "base") or dotted.startswith(f"{OPTIONS}.")
            heavy = dotted.split(".")[0] in ("torch", "numpy") or not light
            assert not heavy, f"{name(file)}:{line} imports {dotted}: help would wait for it"


def test_the_terminal_is_known_to_commands_only():
    """Those of cli/, and those that a task brings along."""
    others = {folder_of(file) for file in FILES} - {"cli", "tasks"}
    assert not [where for where, dotted in imported(*others) if dotted.split(".")[0] in ("typer", "rich")]


def test_ops_know_nothing_of_modules():
    assert not [
        where for where, dotted in imported("ops") if dotted.startswith("torch.nn") and "functional" not in dotted
    ]


def test_no_file_format_that_runs_code():
    assert not [where for where, dotted in imported() if dotted.split(".")[0] in ("pickle", "dill", "cloudpickle")]
    for file in FILES:
        calls = (node for node in ast.walk(parse(file)) if isinstance(node, ast.Call))
        named = (call for call in calls if isinstance(call.func, ast.Attribute) and call.func.attr in ("load", "save"))
        found = [text for text in map(ast.unparse, named) if text.startswith(("torch.load(", "torch.save("))]
        # Other projects' checkpoints are files of torch.save; they are read without running what is in them.
        assert all("weights_only=True" in text for text in found if text.startswith("torch.load(")), name(file)
        assert not found or name(file) == "export/convert.py"


def test_no_folder_or_file_is_a_drawer_for_anything():
    drawers = {"utils", "misc", "common", "helpers"}
    assert not [name(file) for file in FILES if drawers & set(file.relative_to(SOURCE).with_suffix("").parts)]
