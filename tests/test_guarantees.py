"""That every test which docs/guarantees.md names is there, under the name that it has."""

import re
from pathlib import Path

TESTS = Path(__file__).parent
DOCUMENT = TESTS.parent / "docs" / "guarantees.md"


def test_every_guarantee_names_tests_that_there_are():
    rows = [line for line in DOCUMENT.read_text(encoding="utf-8").splitlines() if line.startswith("| ")][1:]
    assert len(rows) >= 18
    for row in rows:
        file, names = "", []
        for path, name in re.findall(r"`([\w/]*\.py|)::(\w+)`", row):
            file = path or file
            assert f"def {name}(" in (TESTS / file).read_text(encoding="utf-8"), f"{file}::{name}"
            names.append(name)
        assert any(name.startswith("test_guarantee_") for name in names), row
