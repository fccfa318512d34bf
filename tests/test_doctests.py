"""The examples in docstrings give what they print."""

import doctest
import importlib
import pkgutil

import pytest

import quasirnn

MODULES = ["quasirnn", *(module.name for module in pkgutil.walk_packages(quasirnn.__path__, "quasirnn."))]


@pytest.mark.parametrize("module", [module for module in MODULES if not module.endswith("._kernels")])
def test_docstring_examples(module):
    if module.endswith("triton_kernels"):
        pytest.importorskip("triton")
    result = doctest.testmod(importlib.import_module(module), optionflags=doctest.NORMALIZE_WHITESPACE)
    assert result.failed == 0
