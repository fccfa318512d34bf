"""What every test relies on: one torch thread per worker, fixed seeds, and the worst cells shown at the end."""

import gc
import logging
import signal
import sys

import hypothesis
import pytest
import torch

# Under nohup it is ignored, and so it would be in every program that a test starts.
signal.signal(signal.SIGHUP, signal.SIG_DFL)

# Workers would fight over the cores otherwise.
torch.set_num_threads(1)

# `make test-full` asks for the second: --hypothesis-profile=full. No example has a deadline: machines are busy.
hypothesis.settings.register_profile("quick", max_examples=30, deadline=None)
hypothesis.settings.register_profile("full", max_examples=300, deadline=None)
hypothesis.settings.load_profile("quick")


def pytest_ignore_collect(collection_path, config):
    """Of the second pass of `make test`, the files that have nothing for it: some import compilers."""
    if config.option.markexpr.startswith("backends") and collection_path.name.startswith("test_"):
        return "pytest.mark.backends" not in collection_path.read_text(encoding="utf-8") or None
    return None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """What a module sets up once is set up once: its tests that need it go to one worker (`--dist loadgroup`)."""
    for item in items:
        # What pytest itself reads: there is no public way to ask a test for the scopes of its fixtures.
        fixtures = getattr(item, "_fixtureinfo", None)
        scopes = {each[-1].scope for each in fixtures.name2fixturedefs.values()} if fixtures else ()
        if "module" in scopes and not item.get_closest_marker("xdist_group"):
            item.add_marker(pytest.mark.xdist_group(str(item.path.relative_to(item.config.rootpath))))


def pytest_collection_finish(session):
    _freeze_what_is_imported()
    # xdist 3.8 cannot group tests under pytest 9.2: every worker would set up again what a group is to share.
    if getattr(session.config.option, "loadgroup", False):
        grouped = [item for item in session.items if item.get_closest_marker("xdist_group")]
        assert all("@" in item.nodeid for item in grouped), "this pytest-xdist does not group tests with this pytest"


def _freeze_what_is_imported(known=[0]):  # noqa: B006
    """What has been imported is no garbage: a collection of it takes half a second, and some tests ask for many."""
    if len(sys.modules) > known[0] + 50:
        known[0] = len(sys.modules)
        gc.collect()
        gc.freeze()
        # For each phase of each test, pytest adds a handler to every logger that does not propagate: torch has fifty.
        for name in [name for name in logging.root.manager.loggerDict if name.startswith("torch")]:
            logging.getLogger(name).propagate = True


@pytest.fixture(autouse=True)
def _fixed_seed():
    torch.manual_seed(0)
    yield
    _freeze_what_is_imported()
    # Some tests, and the examples, choose another number.
    torch.set_num_threads(1)


@pytest.fixture
def worst_cell(record_property):
    """Call it with (guarantee, ratio of error to bound, where): the worst of each guarantee is printed at the end."""

    def record(guarantee: str, ratio: float, where: str) -> None:
        record_property("worst cell", (guarantee, float(ratio), where))

    return record


def pytest_terminal_summary(terminalreporter):
    """Properties travel with the reports, so this also sees what parallel workers found."""
    worst: dict[str, tuple[float, str]] = {}
    cells: dict[str, int] = {}
    for category in ("passed", "failed"):
        for report in terminalreporter.getreports(category):
            for name, value in report.user_properties if report.when == "call" else ():
                if name == "worst cell":
                    guarantee, ratio, where = value
                    cells[guarantee] = cells.get(guarantee, 0) + 1
                    worst[guarantee] = max(worst.get(guarantee, (0.0, "")), (ratio, where))
    if worst:
        terminalreporter.section("worst cells: error / bound")
    for guarantee, (ratio, where) in sorted(worst.items()):
        terminalreporter.line(f"{guarantee} ({cells[guarantee]} tests): {ratio:.2f} at {where}")
