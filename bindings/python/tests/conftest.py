"""Fixtures for all tests."""

import gc
import os
import subprocess
import threading

import _posixsubprocess
import pytest
from held_program import children, open_descriptors


@pytest.fixture(autouse=True)
def patches_of_fork_exec_do_not_count(request, monkeypatch):
    """A test may put a function that refuses in fork_exec's place: Popen must not go by it."""
    if "honours_patches" not in request.keywords:
        monkeypatch.setattr("forkless.subprocess._fork_exec_is_patched", lambda: False)


@pytest.fixture
def no_fork(monkeypatch):
    """Every way to a fork fails: what starts a child nevertheless has not forked."""

    def refuse(*args, **kwargs):
        raise AssertionError("a fork")

    monkeypatch.setattr(_posixsubprocess, "fork_exec", refuse)
    monkeypatch.setattr(subprocess, "_fork_exec", refuse, raising=False)
    monkeypatch.setattr("forkless.subprocess._fork_exec", refuse, raising=False)
    for name in ("fork", "forkpty", "posix_spawn", "posix_spawnp"):
        monkeypatch.setattr(os, name, refuse)


@pytest.fixture
def nothing_is_left():
    """No child and no descriptor stays behind the test."""
    gc.collect()
    before, descriptors = children(), open_descriptors()
    yield
    gc.collect()
    assert children() <= before
    assert open_descriptors() <= descriptors


@pytest.fixture
def no_fork_and_no_thread(monkeypatch):
    """Forks and threads raise an error. The result is a function that does, for further ways."""

    def refuse(*_, **__):
        raise AssertionError("another way was taken")

    # A Python function in its place would be taken for a debugger's, and used. This one raises a
    # TypeError for so many arguments.
    monkeypatch.setattr(_posixsubprocess, "fork_exec", len)
    for module in ("subprocess", "forkless.subprocess"):
        monkeypatch.setattr(module + "._fork_exec", len, raising=False)
    monkeypatch.setattr(os, "fork", refuse)
    monkeypatch.setattr(os, "posix_spawn", refuse)
    monkeypatch.setattr(threading.Thread, "start", refuse)
    return refuse


def pytest_configure(config):
    config.addinivalue_line("markers", "honours_patches: a patched fork_exec is used")
