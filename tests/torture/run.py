"""Everything that can go wrong, many times over: kills, malformed files, mutated requests, sanitizers, known faults.

    make torture [ARGS="--kills 20 --files 1000 kills files"]

By hand, as it takes half an hour on two quiet cores. Parts can be named and made smaller; a table at the end says what
was done, and the exit code is 1 if anything did not hold. docs/torture.md has the last one.
"""

import argparse
import asyncio
import json
import logging
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from pathlib import Path

TESTS = Path(__file__).parents[1]
ROOT = TESTS.parent
sys.path.insert(0, str(TESTS))
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["PYTHONPATH"] = f"{ROOT / 'src'}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"

import torch  # noqa: E402

from cli.interrupted import resumes, steps_saved  # noqa: E402
from data.shapes import LABELLED, PAIRED  # noqa: E402
from golden.command import RUNS, hashes, metrics  # noqa: E402
from quasirnn import load  # noqa: E402
from quasirnn.cli.main import main as quasirnn  # noqa: E402
from quasirnn.data.rows import read_rows  # noqa: E402
from quasirnn.data.sources import Source  # noqa: E402
from quasirnn.data.word_vectors import read_vectors  # noqa: E402
from quasirnn.errors import Failure, UserError  # noqa: E402
from stress.mutants import mutants, send  # noqa: E402
from stress.server_process import ServerProcess  # noqa: E402
from stress.work_mix import requests as ordinary_requests  # noqa: E402
from tasks.tiny import TASKS  # noqa: E402
from training.test_crafted_checkpoints import mutate_value  # noqa: E402


@dataclass(frozen=True)
class Result:
    """A row of the table."""

    what: str
    figures: str
    holds: bool


# Kills.


def in_a_child(arguments: list[str], log: Path) -> int:
    """`quasirnn ARGUMENTS` in a copy of this process, which has imported everything already: the id of the process."""
    child = os.fork()
    if child:
        return child
    with open(log, "ab") as output:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
    sys.argv = ["quasirnn", *arguments]
    code = 1
    try:
        quasirnn()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0
    finally:
        os._exit(code)


def exit_code(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def kills(asked: argparse.Namespace, folder: Path) -> Result:
    """Trainings of every task and cell, killed at random moments and resumed, end as those that nothing has stopped."""
    combinations = [(tiny, cell) for tiny in TASKS.values() for cell in ("qrnn", "lstm")]
    draw = random.Random(asked.seed)
    counts = Counter(draw.choices(range(len(combinations)), k=asked.kills))
    equal, done, began = 0, 0, []
    for number, (tiny, cell) in enumerate(combinations):
        data = tiny.write(folder / f"data-{tiny.name}")
        steps, every = 60 + 8 * counts[number], 3
        keys = tiny.keys(f"max_steps={steps}", "epochs=1000", f"checkpoint_every={every}", cell=cell)
        command = ["train", tiny.name, "--data", str(data), "--preset", "fast", "--cell", cell, *keys]
        whole, broken = folder / f"{tiny.name}-{cell}", folder / f"{tiny.name}-{cell}-killed"
        log = folder / "log"
        if exit_code(in_a_child([*command, "--out", str(whole)], log)) != 0:
            return Result("kills", log.read_text()[-300:], False)
        for target in sorted(draw.sample(range(1, steps - 20), counts[number])):
            child = in_a_child([*command, "--out", str(broken), "--resume"], log)
            enough = max(target, steps_saved(broken) + 1)
            while steps_saved(broken) < enough and os.waitpid(child, os.WNOHANG) == (0, 0):
                time.sleep(0.001)
            time.sleep(draw.uniform(0, 0.03))
            os.kill(child, signal.SIGKILL)
            done += exit_code(child) == -signal.SIGKILL
        if exit_code(in_a_child([*command, "--out", str(broken), "--resume"], log)) != 0:
            return Result("kills", log.read_text()[-300:], False)
        equal += hashes(broken) == hashes(whole) and metrics(broken)[-1] == metrics(whole)[-1]
        began += resumes(broken, every)
    figures = (
        f"{done} kills in {len(combinations)} trainings (3 tasks, 2 cells); {len(began)} resumed at a step > 0, none "
        f"repeated more than checkpoint_every; equal hashes of weights, optimizer and random state: {equal} of "
        f"{len(combinations)}"
    )
    return Result("kills", figures, equal == len(combinations) and done == asked.kills)


# Malformed files.


def mutate(content: bytes, draw: random.Random, is_json: bool) -> bytes:
    if is_json and draw.random() < 0.5:
        values = json.loads(content)
        mutate_value(values, draw)
        return json.dumps(values).encode()
    data = bytearray(content)
    kind = draw.randrange(5)
    if kind == 0:
        for _ in range(draw.randint(1, 8)):
            data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
    elif kind == 1:
        del data[draw.randrange(len(data)) :]
    elif kind == 2:
        place = draw.randrange(len(data))
        data[place : place + draw.randrange(200)] = draw.randbytes(draw.randrange(40))
    elif kind == 3:
        # The first bytes decide: a length, a bracket, a byte order mark.
        data[: draw.randint(1, 16)] = draw.randbytes(draw.randint(0, 16))
    else:
        place = draw.randrange(len(data))
        data[place:place] = data[: draw.randrange(2000)]
    return bytes(data)


DATA = {
    "train.tsv": "label\ttext\npos\tvery good\nneg\tbad\n",
    "train.csv": 'label,text\npos,"very, good"\nneg,bad\n',
    "train.jsonl": '{"label": "pos", "text": "very good"}\n{"label": "neg", "text": "bad"}\n',
    "vectors.txt": "the 1 2.5 -3e-1\nother 1 2 3\ngood 4 5 6\n",
    "vectors.npz": "",
    "pairs.de.xml": '<?xml version="1.0" encoding="UTF-8"?>\n<m><doc><seg id="1">a &amp; b</seg></doc></m>\n',
}


def use_data(file: Path) -> None:
    if file.name.startswith("vectors"):
        read_vectors(file, {"good", "the"})
    elif file.suffix == ".xml":
        list(read_rows(Source("pairs", (file, file)), PAIRED))
    else:
        list(read_rows(Source(file.stem, (file,)), LABELLED))


def use_run(run: Path) -> None:
    pipeline = load(run)
    pipeline.run.read_metrics()
    pipeline.warm_up()
    if pipeline.task == "sentiment":
        list(pipeline.classify_all(["a film"]))
    elif pipeline.task == "language-model":
        pipeline.generate("the", length=2, seed=1)
    else:
        pipeline.translate("c", beam=1)


def files(asked: argparse.Namespace, folder: Path) -> Result:
    """One file of a run, or of data, is changed: it is used as before, or refused in one line."""
    import numpy as np

    logging.getLogger("quasirnn").setLevel(logging.ERROR)
    runs = []
    for golden in sorted(RUNS.iterdir()):
        runs.append(folder / golden.name)
        shutil.copytree(golden, runs[-1], ignore=shutil.ignore_patterns("checkpoint"))
    data = folder / "data"
    data.mkdir()
    for name, text in DATA.items():
        (data / name).write_text(text)
    words = np.frombuffer(b"good\nbad\nother", np.uint8)
    np.savez(data / "vectors.npz", words_utf8=words, vectors=np.ones((3, 2), np.float16))
    draw, results = random.Random(asked.seed), Counter[str]()
    faults: list[str] = []
    slowest = 0.0
    for number in range(asked.files):
        use: Callable[[Path], None]
        if draw.random() < 0.3:
            file = data / draw.choice(sorted(DATA))
            target, use = file, use_data
        else:
            target, use = draw.choice(runs), use_run
            names = ("config.json", "training.json", "vocabulary.json", "model.safetensors", "metrics.jsonl")
            file = target / draw.choice(names)
        whole = file.read_bytes()
        began = time.monotonic()
        try:
            file.write_bytes(mutate(whole, draw, file.suffix == ".json"))
            use(target)
            results["used"] += 1
        except (UserError, Failure, OSError) as error:
            results["refused"] += 1
            if "\n" in str(error) or len(str(error)) > 3000:
                faults.append(f"{number}: {file.name}: {str(error)[:200]!r}")
        except Exception as error:
            faults.append(f"{number}: {file.name}: {type(error).__name__}: {str(error)[:200]}")
        finally:
            slowest = max(slowest, time.monotonic() - began)
            file.write_bytes(whole)
    for fault in faults[:20]:
        print(fault, flush=True)
    figures = f"{asked.files:,} changed files: {results['refused']:,} refused in one line, {results['used']:,} used; "
    figures += f"{len(faults)} tracebacks; the slowest took {slowest:.1f} s"
    return Result("malformed files", figures, not faults)


# Mutated requests.


def requests(asked: argparse.Namespace, folder: Path) -> Result:
    runs = [RUNS / name for name in ("sentiment-qrnn", "language-model-qrnn", "translation-qrnn")]
    asks = ordinary_requests(["language-model", "sentiment", "translation"], seed=asked.seed)
    with ServerProcess(runs) as server:
        before = server.memory()
        statuses, faults = asyncio.run(send(server, mutants(asks, seed=asked.seed), asked.requests))
        alive, after, said = server.is_alive(), server.memory(), server.said()
    for fault in faults[:20]:
        print(fault, flush=True)
    told = ", ".join(f"{count:,} of {status}" for status, count in sorted(statuses.items()))
    figures = f"{asked.requests:,} mutated requests: {told} (0: ended without an answer); {len(faults)} faults; memory "
    figures += f"{before / 1e6:.0f} to {after / 1e6:.0f} MB"
    return Result("mutated requests", figures, alive and not faults and "Traceback" not in said)


# Programs of their own.


def program(what: str, words: list[str]) -> Result:
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    lines = [line for line in done.stdout.splitlines() if line.strip()]
    if done.returncode:
        print(done.stdout[-3000:], done.stderr[-3000:], flush=True)
    return Result(what, lines[-1] if lines else done.stderr[-200:], done.returncode == 0)


def sanitizers(asked: argparse.Namespace, folder: Path) -> Result:
    return program("ASan and UBSan", ["make", "-s", "sanitize", f"ARGS=--shapes {asked.shapes} --seed {asked.seed}"])


def faults(asked: argparse.Namespace, folder: Path) -> Result:
    return program("known faults", [sys.executable, str(TESTS / "faults/run.py"), "--no-baseline", *asked.faults])


PARTS: dict[str, Callable[[argparse.Namespace, Path], Result]] = {
    "kills": kills,
    "files": files,
    "requests": requests,
    "sanitizers": sanitizers,
    "faults": faults,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"some of {', '.join(PARTS)}; all if none")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--shapes", type=int, default=5000, help="for the sanitizers")
    parser.add_argument("--faults", nargs="*", default=[], metavar="WORD", help="only those with one of these words")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    if unknown := set(asked.parts) - set(PARTS):
        parser.error(f"no such part: {', '.join(sorted(unknown))}")
    torch.set_num_threads(1)
    rows, holds = [], True
    for name in asked.parts or PARTS:
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="torture-") as folder:
            result = PARTS[name](asked, Path(folder))
        minutes = (time.monotonic() - began) / 60
        holds &= result.holds
        row = (
            f"| {result.what} | {result.figures} | {'holds' if result.holds else '**does not hold**'} | {minutes:.1f} |"
        )
        print(row, flush=True)
        rows.append(row)
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout
    print(f"\n{date.today():%Y-%m-%d}, commit {commit.strip()}, seed {asked.seed}\n")
    print("| part | figures | | minutes |\n|---|---|---|---|")
    print("\n".join(rows))
    sys.exit(not holds)


if __name__ == "__main__":
    main()
