"""`quasirnn doctor`: what is installed, what will run, and whether it is correct."""

import json as json_format
import os
import platform
from typing import Annotated, Any

import typer

from quasirnn.errors import counted

# Optional packages by the group of `pip install 'quasirnn[group]'` that brings them.
OPTIONAL = {
    "train": ["accelerate"],
    "translate": ["sacrebleu"],
    "demo": ["num2words", "babel"],
    "plot": ["matplotlib"],
    "serve": ["fastapi", "uvicorn"],
    "onnx": ["onnx", "onnxruntime"],
    "hf": ["transformers"],
}


def doctor(
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")] = False,
) -> None:
    """Show versions, CPU, GPU and kernels, and check the pooling against its definition.

    The exit code is 1 if that check fails.
    """
    findings = examine()
    if json:
        print(json_format.dumps(findings, indent=2))
    else:
        print_findings(findings)
    if not findings["self_check"]["ok"]:
        raise typer.Exit(1)


def examine() -> dict[str, Any]:
    import torch

    from quasirnn.benchmarks.correctness import check_pooling
    from quasirnn.benchmarks.machine import usable_cores
    from quasirnn.ops import backends
    from quasirnn.tasks.run_folder import cpu_name, version_of

    packages = ["quasirnn", "torch", "numpy", "triton"]
    checks = {device: check_pooling(device=device) for device in ["cpu", "cuda"][: 1 + torch.cuda.is_available()]}
    return {
        "versions": {"python": platform.python_version(), **{name: version_of(name) for name in packages}},
        "optional": {group: {name: version_of(name) for name in names} for group, names in OPTIONAL.items()},
        "cpu": {
            "name": cpu_name(),
            "instruction_set": torch.backends.cpu.get_cpu_capability(),
            "cores": usable_cores(),
            "threads": torch.get_num_threads(),
        },
        "gpu": [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())],
        "backends": backends.report(),
        "library": backends.library_path(),
        "environment": {name: value for name, value in os.environ.items() if name.startswith(("QUASIRNN_", "ONEDNN_"))},
        "self_check": {
            "ok": all(check.ok for check in checks.values()),
            **{
                device: {"worst": check.worst, "error": check.error, "allowed": check.allowed, "ok": check.ok}
                for device, check in checks.items()
            },
        },
    }


def print_findings(findings: dict[str, Any]) -> None:
    for name, version in findings["versions"].items():
        line(name, version or "not installed")
    for group, packages in findings["optional"].items():
        missing = [name for name, version in packages.items() if version is None]
        here = [f"{name} {version}" for name, version in packages.items() if version is not None]
        if missing:
            here.append(f"not installed (optional): pip install {' '.join(missing)}")
        line(f"[{group}]", ", ".join(here))

    cpu = findings["cpu"]
    print()
    line(
        "CPU",
        f"{cpu['name']}, {counted(cpu['cores'], 'core')}; torch uses {counted(cpu['threads'], 'thread')} and "
        f"{cpu['instruction_set']}",
    )
    line("GPU", ", ".join(findings["gpu"]) or "none that torch can see")
    for device, backend in findings["backends"].items():
        line(f"runs on {device}", describe(backend))
    line("library", findings["library"] or "not built")
    for name, value in findings["environment"].items():
        line(name, value)

    print()
    for device, check in findings["self_check"].items():
        if device != "ok":
            verdict = "correct" if check["ok"] else "WRONG"
            line(
                f"check on {device}",
                f"fo-pooling is {verdict}: largest error {check['error']:.1e} ({check['worst']}), "
                f"{check['allowed']:.1e} allowed",
            )


def describe(backend: dict[str, Any]) -> str:
    if backend["backend"] == "kernels":
        return f"the compiled kernels, {backend['instruction_set']}"
    if backend["backend"] == "plain":
        return f"plain PyTorch, slower; no kernels: {backend['reason']}"
    return ": ".join(filter(None, (backend["backend"], backend["reason"])))


def line(name: str, text: str) -> None:
    print(f"{name:<16} {text}")
