"""Put one fault at a time into a copy of the sources and see which test notices: python tests/faults/run.py

A suite that is made faster must still notice what the slower one did. README.md has the table of the last run.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


@dataclass(frozen=True)
class Fault:
    name: str
    file: str
    find: str
    replace: str
    tests: list[str]
    backend: str | None = None

    @property
    def compiled(self) -> bool:
        return "/csrc/" in self.file


@dataclass
class Copy:
    """The tracked files in a folder of their own, with the kernels as they were built here."""

    root: Path
    workers: int
    environment: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
        for name in filter(None, tracked.stdout.split("\0")):
            if (ROOT / name).is_file():
                (self.root / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, self.root / name)
        # Before what is installed, also in processes that the tests start.
        self.environment = os.environ | {"PYTHONPATH": str(self.root / "src"), "OMP_NUM_THREADS": "1"}
        self.restore_kernels()
        imported = self.run("-c", "import quasirnn; print(quasirnn.__file__)").stdout
        assert imported.startswith(str(self.root)), f"the tests would import {imported}"

    def run(self, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *words],
            cwd=self.root,
            env=self.environment | environment,
            capture_output=True,
            text=True,
        )

    def build_kernels(self) -> None:
        built = self.run("setup.py", "-q", "build_ext", "--inplace")
        assert built.returncode == 0, built.stderr

    def restore_kernels(self) -> None:
        for library in (ROOT / "src/quasirnn").glob("_kernels.*"):
            shutil.copy2(library, self.root / "src/quasirnn" / library.name)

    def test(self, files: list[str], backend: str | None = None) -> str | None:
        """The first test that fails, or None."""
        chosen = {} if backend is None else {"QUASIRNN_BACKEND": backend}
        words = ["-m", "pytest", "-x", "-q", "-n", str(self.workers), "--dist", "loadgroup", "-p", "no:cacheprovider"]
        result = self.run(*words, *(f"tests/{name}" for name in files), **chosen)
        if result.returncode == 0:
            return None
        failed = re.search(r"^(?:FAILED|ERROR) (\S+?::\w+|\S+)", result.stdout, re.MULTILINE)
        assert failed, result.stdout[-2000:] + result.stderr[-2000:]
        return failed[1].removeprefix("tests/")


def faults() -> list[Fault]:
    return [Fault(**values) for values in tomllib.loads((HERE / "faults.toml").read_text())["fault"]]


def caught(copy: Copy, fault: Fault) -> str:
    """Which test notices the fault."""
    file = copy.root / "src/quasirnn" / fault.file
    sound = file.read_text()
    if sound.count(fault.find) != 1:
        return f"does not apply: found {sound.count(fault.find)} times"
    try:
        file.write_text(sound.replace(fault.find, fault.replace))
        if fault.compiled:
            copy.build_kernels()
        test = copy.test(fault.tests, fault.backend)
    finally:
        file.write_text(sound)
        if fault.compiled:
            copy.restore_kernels()
    return f"`{test}`" if test else "**not caught**"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("words", nargs="*", help="only faults with one of these words in name or file")
    parser.add_argument("--no-baseline", action="store_true", help="do not run the tests on sound sources first")
    parser.add_argument("--workers", type=int, default=2, help="of pytest")
    asked = parser.parse_args()
    chosen = faults()
    if asked.words:
        chosen = [fault for fault in chosen if any(word in fault.name + fault.file for word in asked.words)]
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="faults-") as folder:
        copy = Copy(Path(folder), asked.workers)
        if not asked.no_baseline:
            for backend in sorted({fault.backend or "" for fault in chosen}):
                files = sorted({name for fault in chosen if (fault.backend or "") == backend for name in fault.tests})
                failed = copy.test(files, backend or None)
                assert failed is None, f"{failed} fails without any fault"
        print("| file | fault | caught by |\n|---|---|---|", flush=True)
        results = []
        for fault in chosen:
            results.append(caught(copy, fault))
            print(f"| `{fault.file}` | {fault.name} | {results[-1]} |", flush=True)
    number = sum(result.startswith("`") for result in results)
    print(f"\n{number} of {len(chosen)} caught, {(time.monotonic() - began) / 60:.1f} minutes.")
    sys.exit(number != len(chosen))


if __name__ == "__main__":
    main()
