"""What the tests of training share."""

import gc
import os

import pytest


@pytest.fixture
def quick(monkeypatch):
    """For tests that train dozens of times: the disk and the garbage collector are asked for nothing."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    monkeypatch.setattr(gc, "collect", lambda *generation: 0)
