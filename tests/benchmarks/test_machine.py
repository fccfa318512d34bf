import os

import pytest

from quasirnn.benchmarks import machine


def test_the_machine_has_a_name_and_cores():
    about = machine.describe()
    assert about["cpu"]
    assert about["cores"] >= 1


@pytest.mark.skipif(not hasattr(os, "getloadavg"), reason="the system tells no load")
def test_a_busy_machine_is_said_to_be_busy(monkeypatch):
    monkeypatch.setattr(machine, "usable_cores", lambda: 2)
    monkeypatch.setattr(os, "getloadavg", lambda: (3.64, 0.0, 0.0))
    assert machine.busy_with_other_work() == "this machine is busy (load 3.6 on 2 cores), so timings are not reliable"
    monkeypatch.setattr(os, "getloadavg", lambda: (1.9, 9.0, 9.0))
    assert machine.busy_with_other_work() is None


def test_what_others_did_meanwhile_is_told_apart_from_our_own_work(monkeypatch):
    tick = os.sysconf("SC_CLK_TCK")
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setattr(machine, "_own_seconds", lambda: 17.0)
    # Ten seconds of two cores: 19 seconds of work, 15 of them ours.
    monkeypatch.setattr(machine, "_cpu_ticks", lambda: (119 * tick, 320 * tick))
    began = ((100 * tick, 300 * tick), 2.0)
    about = machine.finished({"others_before": 0.1, "began": began})
    assert about["others_during"] == pytest.approx(0.4)
    assert about["busy"]
    assert "began" not in about
    monkeypatch.setattr(machine, "_own_seconds", lambda: 20.0)
    assert not machine.finished({"others_before": 0.1, "began": began})["busy"]
    assert machine.finished({"others_before": 1.0, "began": began})["busy"]
    # Where the system tells nothing, nothing is claimed.
    assert machine.finished({"others_before": None, "began": (None, 2.0)})["others_during"] is None


def test_other_work_is_measured_where_the_system_tells():
    assert machine.cores_in_use(0.05) is None or machine.cores_in_use(0.05) >= 0
