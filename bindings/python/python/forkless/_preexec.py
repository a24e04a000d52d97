"""What to use in place of a `preexec_fn`: the message of the warning about one."""

from __future__ import annotations

# Not from `typing`, whose import takes as long as that of `subprocess`.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, List, Set, Tuple


# Names that such a function calls, with what does the same without a fork.
_INSTEAD: Tuple[Tuple[Tuple[str, ...], str], ...] = (
    (("setsid",), "start_new_session=True"),
    (("setpgrp", "setpgid"), "process_group=0"),
    (("setrlimit", "prlimit"), "rlimits={...}"),
    (
        ("prctl", "PR_SET_PDEATHSIG", "set_pdeathsig"),
        "pdeathsig=signal.SIGTERM or no_new_privs=True",
    ),
    (("umask",), "umask=..."),
    (("setuid", "setreuid", "setresuid", "seteuid"), "user=..."),
    (("setgid", "setregid", "setresgid", "setegid"), "group=..."),
    (("setgroups", "initgroups"), "extra_groups=[...]"),
    (("nice", "setpriority"), "nice=..."),
    (("sched_setaffinity",), "affinity={...}"),
    (("sched_setscheduler", "sched_setparam"), "scheduler=..."),
    (("chdir", "fchdir"), "cwd=..."),
    (("close", "closerange"), "close_fds=True, which is the default"),
    (("dup", "dup2"), "fds={...} or pass_fds=..."),
    (("TIOCSCTTY", "login_tty"), "setctty=True"),
)


def _names(function: Any, depth: int = 0) -> Set[str]:
    """The names that a function's code uses, and those of the functions in it."""
    # functools.partial, and a bound method.
    function = getattr(function, "func", function)
    name = getattr(function, "__name__", None)
    found = {name} if isinstance(name, str) else set()
    codes: List[Any] = [getattr(function, "__code__", None)]
    while codes:
        code = codes.pop()
        if code is None:
            continue
        found.update(code.co_names)
        codes.extend(inner for inner in code.co_consts if hasattr(inner, "co_names"))
    if depth < 2:
        # A function of the program's that does the work.
        outside = getattr(function, "__globals__", {})
        for used in list(found):
            value = outside.get(used)
            if value is not function and hasattr(value, "__code__"):
                found |= _names(value, depth + 1)
    return found


def advice(function: Any) -> str:
    """One line: what is slow and dangerous, and what to use."""
    try:
        used = _names(function)
    except Exception:
        # A name is all that it is for: no odd callable may break the start.
        used = set()
    instead = [option for names, option in _INSTEAD if not used.isdisjoint(names)]
    if not instead:
        instead = ["the options of forkless.subprocess.Popen (help(forkless.subprocess))"]
    return "preexec_fn makes this start fork, and may deadlock beside threads: use %s" % (
        ", ".join(instead)
    )
