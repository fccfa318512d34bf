"""Build the library of the operators and CPU kernels, `quasirnn/_kernels.abi3.so`; all else is in pyproject.toml.

It uses torch's stable ABI and nothing of Python, so that one binary serves every Python and every torch from 2.10 on,
and C++ programs. It has the form of an extension module because that is what setuptools builds and wheels carry.
Only torch's headers and libraries are needed, not torch itself; pip's isolated builds find them too.
What cannot be built is an error of one line that says what to type: a package that is silently slower helps nobody.

    QUASIRNN_NO_KERNELS=1  leave them out: a wheel for any machine (py3-none-any) that runs on plain PyTorch, slower
    QUASIRNN_SANITIZE=1    build with AddressSanitizer and UndefinedBehaviorSanitizer (`make sanitize`)
"""

import os
import sys
import sysconfig
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
        depends=[*sorted(map(str, CSRC.glob("*.h"))), "src/quasirnn/ops/schemas.inc", "setup.py"],
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


def torch_folder() -> Path:
    """Where torch is installed. An isolated build hides the environment's packages from `import`, not from the disk."""
    installed = [sysconfig.get_path("platlib"), sysconfig.get_path("purelib")]
    for folder in [*sys.path, *installed]:
        if (Path(folder) / "torch/include/torch/csrc/stable").is_dir():
            return Path(folder) / "torch"
    raise RuntimeError("torch 2.10 or newer must be installed first: pip install torch, then the same again")


class BuildKernels(build_ext):
    """`build_ext` against torch's stable ABI."""

    def run(self) -> None:
        try:
            torch = torch_folder()
            for extension in self.extensions:
                extension.include_dirs += [str(torch / "include"), str(torch / "include/torch/csrc/api/include")]
                extension.library_dirs.append(str(torch / "lib"))
                extension.libraries += ["c10", "torch", "torch_cpu"]
            super().run()
        except Exception as error:
            self.remove_stale()
            hint = " (a C++ compiler: apt install g++)" if "No such file" in str(error) else ""
            raise SystemExit(
                f"quasirnn: the CPU kernels could not be built: {error}{hint}. "
                "Without them, slower: QUASIRNN_NO_KERNELS=1 pip install ..."
            ) from error

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
