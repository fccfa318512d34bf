"""That every known fault can still be put into the sources: where code moves, `faults.toml` has to follow."""

from pathlib import Path

import pytest

from faults.run import HERE, ROOT, Fault, faults

KNOWN = faults()


@pytest.mark.parametrize("fault", KNOWN, ids=[fault.name for fault in KNOWN])
def test_the_fault_applies_in_one_place(fault: Fault):
    source = (ROOT / "src/quasirnn" / fault.file).read_text()
    assert source.count(fault.find) == 1
    assert fault.find != fault.replace
    assert [name for name in fault.tests if not (HERE.parent / Path(name)).is_file()] == []


def test_the_table_has_every_fault():
    assert len(KNOWN) >= 30
    table = (HERE / "README.md").read_text()
    assert [fault.name for fault in KNOWN if fault.name not in table] == []
