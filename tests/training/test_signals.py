"""The first signal is stored, the second one forces."""

import os
import signal
import threading
import time

import pytest

from processes import run_with_torch
from quasirnn.training import processes
from quasirnn.training.processes import SIGNALS, StopSignals


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_is_stored_and_the_handlers_are_restored(number):
    before = [signal.getsignal(each) for each in SIGNALS]
    with StopSignals() as stop:
        assert stop.received is None
        os.kill(os.getpid(), number)
        assert stop.received == number
        # The same signal once more, from a launcher.
        os.kill(os.getpid(), number)
    assert [signal.getsignal(each) for each in SIGNALS] == before


def test_a_hang_up_that_is_ignored_stays_ignored():
    """As under nohup."""
    former = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with StopSignals() as stop:
            os.kill(os.getpid(), signal.SIGHUP)
            assert stop.received is None
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, former)


FORCED = """
import os, signal, sys, time
from quasirnn.training.processes import StopSignals
try:
    with StopSignals():
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.3)
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(60)
finally:
    print("cleaned up")
"""


def test_guarantee_stops_cleanly_a_second_signal_forces():
    done = run_with_torch(FORCED)
    assert (done.returncode, done.stdout, done.stderr) == (128 + signal.SIGINT, "", "")


def test_a_second_signal_counts_when_it_is_no_echo(monkeypatch):
    exits = []
    monkeypatch.setattr(processes, "ECHO_SECONDS", 0.0)
    monkeypatch.setattr(os, "_exit", exits.append)
    with StopSignals():
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.001)
        os.kill(os.getpid(), signal.SIGTERM)
    assert exits == [128 + signal.SIGTERM]


def test_in_another_thread_it_does_nothing():
    before = signal.getsignal(signal.SIGTERM)
    seen = []

    def work():
        with StopSignals() as stop:
            seen.append((signal.getsignal(signal.SIGTERM), stop.received))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [(before, None)]
    assert signal.getsignal(signal.SIGTERM) == before
