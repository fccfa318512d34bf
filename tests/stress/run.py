"""The server under load, disconnects, mutated requests and SIGTERM: figures, and exit code 1 if a promise is broken.

    .venv/bin/python tests/stress/run.py [--quick] [--json FILE] [RUN ...]

Without RUNs, a model of each task is trained first, on its built-in corpus, for a minute or so. Promises are: no answer
of status 500, no traceback, the process alive, nothing active when everybody has left, every accepted request answered
before SIGTERM ends it, exit code 0. How fast it is is measured and put beside its goal; the load comes from this
machine too and takes a part of its cores.
"""

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from quasirnn.benchmarks import machine
from quasirnn.tasks.run_folder import open_run
from stress.disconnects import leave_at_random, seconds_until_idle
from stress.ending import end_under_load
from stress.fairness import measure
from stress.load import LoadFigures, capacity, open_loop
from stress.mutants import mutants, send
from stress.server_process import ServerProcess
from stress.work_mix import Ask, requests

QUEUE = 32
STEPS = {"sentiment": 200, "language-model": 100, "translation": 400}


@dataclass(frozen=True)
class Plan:
    warm_up: float  # seconds
    seconds: float  # of each load
    disconnects: int
    mutants: int
    clients: int  # when it ends
    fairness: bool = True


FULL = Plan(warm_up=10.0, seconds=30.0, disconnects=200, mutants=2000, clients=24)
QUICK = Plan(warm_up=2.0, seconds=3.0, disconnects=40, mutants=200, clients=12)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", nargs="*", type=Path, help="folders of trained models")
    parser.add_argument("--quick", action="store_true", help="a tenth of everything")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures to this file as well")
    arguments = parser.parse_args()
    plan = QUICK if arguments.quick else FULL
    about = machine.describe("cpu")
    with tempfile.TemporaryDirectory() as folder:
        runs = arguments.run or train_runs(Path(folder))
        figures, broken = asyncio.run(stress(runs, plan))
    figures["machine"] = machine.finished(about)
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    for promise in broken:
        print(f"BROKEN: {promise}")
    print("all promises kept" if not broken else f"{len(broken)} promises broken")
    sys.exit(bool(broken))


def train_runs(folder: Path) -> list[Path]:
    runs = []
    for task, steps in STEPS.items():
        print(f"training a model: {task}, {steps} steps", flush=True)
        out = folder / task
        command = [sys.executable, "-m", "quasirnn", "train", task, "--out", str(out), f"max_steps={steps}"]
        subprocess.run(command, check=True, capture_output=True)
        runs.append(out)
    return runs


async def stress(runs: list[Path], plan: Plan) -> tuple[dict[str, Any], list[str]]:
    tasks = sorted({open_run(run).task() for run in runs})
    asks = requests(tasks, seed=1)
    figures: dict[str, Any] = {"plan": asdict(plan), "tasks": tasks, "queue": QUEUE}
    broken: list[str] = []
    with ServerProcess(runs, "--queue", str(QUEUE)) as server:
        await loads(server, asks, plan, figures, broken)
        if plan.fairness and len(tasks) == 3:
            await fairness(server, plan, figures, broken)
        await disconnects(server, asks, plan, figures, broken)
        await strange_requests(server, asks, plan, figures, broken)
        await ending(server, asks, plan, figures, broken)
    return figures, broken


async def loads(
    server: ServerProcess, asks: Iterator[Ask], plan: Plan, figures: dict[str, Any], broken: list[str]
) -> None:
    await capacity(server, asks, plan.warm_up, clients=4)
    can = await capacity(server, asks, plan.seconds / 2, clients=QUEUE)
    figures["capacity"] = can
    print(f"capacity, {QUEUE} clients that wait for their answers: {can:.1f} requests/s", flush=True)
    for factor in (0.5, 2.0):
        load = await open_loop(server, asks, factor * can, plan.seconds)
        figures[f"load_{factor:g}"] = asdict(load)
        show_load(factor, load, can)
        if strangers := set(load.statuses) - {200, 503}:
            broken.append(f"at {factor:g} times the capacity: statuses {sorted(strangers)}")
        if not load.retry_after:
            broken.append("a refusal without Retry-After")
    if (idle := await seconds_until_idle(server)) is None:
        broken.append("something is active after the load")
    figures["idle_after_load"] = idle


def show_load(factor: float, load: LoadFigures, can: float) -> None:
    refused = "-" if load.refused_p99 is None else f"{load.refused_p99 * 1e3:.0f} ms"
    goal = min(factor, 1.0) * 0.85
    share = load.goodput / can
    print(
        f"{factor:g} x capacity for {load.seconds:g} s: {load.rate:.1f} arrive/s, goodput {load.goodput:.1f}/s = "
        f"{100 * share:.0f} % of capacity ({'met' if share >= goal else 'not met'}: {100 * goal:.0f} %); refused "
        f"{100 * load.refused_share:.0f} %, p99 of a refusal {refused} (goal 100 ms); accepted p50 "
        f"{load.accepted_p50 * 1e3:.0f} ms, p99 {load.accepted_p99 * 1e3:.0f} ms; memory "
        f"{load.memory_before / 1e6:.0f} -> {load.memory_after / 1e6:.0f} MB; generator late by "
        f"{load.late_p99 * 1e3:.0f} ms (p99), at most {load.late * 1e3:.0f} ms; {load.statuses}",
        flush=True,
    )


async def fairness(server: ServerProcess, plan: Plan, figures: dict[str, Any], broken: list[str]) -> None:
    fair = await measure(server, plan.seconds / 2, plan.mutants // 20)
    beside = {"generation": fair.generation_beside_30, "translation": fair.translation_beside_30}
    figures["fairness"] = {
        **{name: getattr(fair, name) for name in ("generation_alone", "translation_alone", "short_idle_p99")},
        **{f"{name}_beside_30": [answer.status, answer.seconds] for name, answer in beside.items()},
        "short_beside_40": dict(fair.short_beside_40),
        "short_beside_8_p99": fair.short_beside_8_p99,
    }
    for name, answer in beside.items():
        if answer.status != 200:
            broken.append(f"a {name} beside 30 clients that classify: status {answer.status}")
    if fair.short_beside_40.keys() - {200}:
        broken.append(f"short requests beside 40 long ones of another client: {dict(fair.short_beside_40)}")
    print(
        f"beside 30 clients that classify 3,900 characters: 2,000 tokens in {fair.generation_beside_30.seconds:.1f} s "
        f"(alone {fair.generation_alone:.1f}), a translation in {fair.translation_beside_30.seconds:.2f} s (alone "
        f"{fair.translation_alone:.2f}); short requests beside 40 long ones of one client: "
        f"{dict(fair.short_beside_40)}; p99 of a short one {fair.short_idle_p99 * 1e3:.0f} ms, beside 8 long ones "
        f"{fair.short_beside_8_p99 * 1e3:.0f} ms (goal: 5 times)",
        flush=True,
    )


async def disconnects(
    server: ServerProcess, asks: Iterator[Ask], plan: Plan, figures: dict[str, Any], broken: list[str]
) -> None:
    await leave_at_random(server, asks, plan.disconnects)
    idle = await seconds_until_idle(server)
    figures["idle_after_disconnects"] = idle
    if idle is None or not server.is_alive():
        broken.append(f"after {plan.disconnects} disconnects something is still active")
    else:
        print(f"{plan.disconnects} disconnects: nothing active {idle:.2f} s after the last", flush=True)


async def strange_requests(
    server: ServerProcess, asks: Iterator[Ask], plan: Plan, figures: dict[str, Any], broken: list[str]
) -> None:
    before = server.memory()
    statuses, faults = await send(server, mutants(asks, seed=1), plan.mutants)
    figures["mutants"] = {str(status): count for status, count in sorted(statuses.items())}
    figures["mutants_memory"] = [before, server.memory()]
    broken += faults
    if not server.is_alive():
        broken.append("the server has died of a mutated request")
    print(
        f"{plan.mutants} mutated requests: {dict(sorted(statuses.items()))} (0: the connection ended or no answer came "
        f"to an unfinished request); memory {before / 1e6:.0f} -> {server.memory() / 1e6:.0f} MB",
        flush=True,
    )


async def ending(
    server: ServerProcess, asks: Iterator[Ask], plan: Plan, figures: dict[str, Any], broken: list[str]
) -> None:
    end = await end_under_load(server, asks, plan.clients)
    figures["ending"] = asdict(end)
    if end.statuses.keys() - {200} or end.exit_code != 0:
        broken.append(f"SIGTERM under load: statuses {end.statuses}, exit code {end.exit_code}, {end.troubles}")
    if "Traceback" in end.said:
        broken.append(f"a traceback in the log: {end.said[-2000:]}")
    print(f"SIGTERM with {plan.clients} requests at work: {end.statuses}, exit code {end.exit_code}", flush=True)


if __name__ == "__main__":
    main()
