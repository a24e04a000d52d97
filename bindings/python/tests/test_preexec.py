"""The warning about a preexec_fn names what to use instead."""

import functools
import os
import resource

from forkless import _preexec


def _limit_cpu():
    resource.setrlimit(resource.RLIMIT_CPU, (1, 1))


def _by_another_function():
    _limit_cpu()


def test_the_options_are_those_that_the_function_stands_for():
    cases = [
        (os.setsid, ["start_new_session=True"]),
        (os.setpgrp, ["process_group=0"]),
        (_limit_cpu, ["rlimits={...}"]),
        (_by_another_function, ["rlimits={...}"]),
        (lambda: os.umask(0o77), ["umask=..."]),
        (lambda: (os.setgid(1), os.setuid(1)), ["user=...", "group=..."]),
        (functools.partial(os.nice, 5), ["nice=..."]),
    ]
    for function, options in cases:
        text = _preexec.advice(function)
        assert text.endswith("use " + ", ".join(options)), text


def test_an_unknown_function_is_sent_to_the_documentation():
    class Odd:
        def __call__(self):
            pass

        def __getattr__(self, name):
            raise RuntimeError(name)

    for function in (lambda: None, Odd(), 7):
        assert "help(forkless.subprocess)" in _preexec.advice(function)
