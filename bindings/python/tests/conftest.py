"""Fixtures for all tests."""

import os
import subprocess

import _posixsubprocess
import pytest


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


def pytest_configure(config):
    config.addinivalue_line("markers", "honours_patches: a patched fork_exec is used")
