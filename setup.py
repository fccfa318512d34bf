"""Build the CPU kernels, `quasirnn._kernels`; everything else is in pyproject.toml.

The extension uses torch's stable ABI and Python's limited API, so that one binary serves every torch from 2.10 on.
A machine without torch at build time or without a compiler still gets the package: it then runs on plain PyTorch,
and this file says so in one line.

    QUASIRNN_NO_KERNELS=1       do not build them
    QUASIRNN_REQUIRE_KERNELS=1  fail if they cannot be built
    QUASIRNN_SANITIZE=1         build with AddressSanitizer and UndefinedBehaviorSanitizer (`make sanitize`)
"""

import os
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

# setuptools wants paths relative to this file.
CSRC = Path("src/quasirnn/ops/csrc")
# Python 3.10 and torch 2.10: the oldest the binary runs with.
PYTHON_ABI, PYTHON_TAG = "0x030A0000", "cp310"
TORCH_ABI = "0x020a000000000000"


def switched_on(name: str) -> bool:
    return os.environ.get(name, "0") not in ("", "0")


def kernels() -> Extension:
    """The extension, as yet without torch's folders: those are looked up when it is built."""
    # The two maths flags let loops with exp and division vectorise; results stay IEEE, only errno and traps go.
    compile_flags = [
        "-std=c++20",
        "-O3",
        "-fno-math-errno",
        "-fno-trapping-math",
        "-fvisibility=hidden",
        "-Wall",
        "-g0",
    ]
    link_flags = []
    if switched_on("QUASIRNN_SANITIZE"):
        sanitizers = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
        compile_flags += [*sanitizers, "-fno-omit-frame-pointer", "-g", "-O1", "-DQUASIRNN_SANITIZE"]
        link_flags += sanitizers
    return Extension(
        "quasirnn._kernels",
        sources=sorted(map(str, CSRC.glob("*.cpp"))),
        depends=[*sorted(map(str, CSRC.glob("*.h"))), "setup.py"],
        define_macros=[
            ("Py_LIMITED_API", PYTHON_ABI),
            ("TORCH_TARGET_VERSION", TORCH_ABI),
            ("TORCH_STABLE_ONLY", None),
        ],
        extra_compile_args=compile_flags,
        extra_link_args=link_flags,
        language="c++",
        py_limited_api=True,
    )


class BuildKernels(build_ext):
    """`build_ext` whose failure costs speed, not the installation."""

    def run(self) -> None:
        try:
            self.add_torch()
            super().run()
        except Exception as error:
            if switched_on("QUASIRNN_REQUIRE_KERNELS"):
                raise SystemExit(f"quasirnn: the CPU kernels could not be built: {error}") from error
            self.remove_stale()
            self.extensions = []
            print(
                f"quasirnn: installed without the CPU kernels, will run on plain PyTorch (slower): {error}",
                file=sys.stderr,
            )

    def add_torch(self) -> None:
        try:
            from torch.utils.cpp_extension import CppExtension
        except ImportError as error:
            raise RuntimeError(
                "torch is not there at build time; install it first, then use --no-build-isolation"
            ) from error
        for extension in self.extensions:
            with_torch = CppExtension(extension.name, extension.sources, py_limited_api=True)
            extension.include_dirs += with_torch.include_dirs
            extension.library_dirs += with_torch.library_dirs
            extension.libraries += with_torch.libraries

    def remove_stale(self) -> None:
        """An in-place binary of older sources must not stay behind: its operators may have other signatures."""
        for binary in Path("src/quasirnn").glob("_kernels.*.so"):
            binary.unlink()


if switched_on("QUASIRNN_NO_KERNELS"):
    setup()
else:
    setup(
        ext_modules=[kernels()],
        cmdclass={"build_ext": BuildKernels},
        options={"bdist_wheel": {"py_limited_api": PYTHON_TAG}},
    )
