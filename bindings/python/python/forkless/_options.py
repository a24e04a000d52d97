"""The keyword arguments that `Popen` has beyond the standard ones: their values, checked, and what
each means for a start.

They stand for what a `preexec_fn` would do; see :mod:`forkless.subprocess` for each. Nothing here
starts anything.
"""

from __future__ import annotations

import errno
import operator
import os
from collections.abc import Mapping

from ._native import StepError

# Not from `typing`, whose import takes as long as that of `subprocess`.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, FrozenSet, List, Optional, Tuple

# RLIM_INFINITY as the kernel has it. Python's module `resource` has -1.
_UNLIMITED = 2**64 - 1


class Options:
    """What was given of :data:`NAMES`."""

    __slots__ = ("native", "fds", "deadline", "kill_group", "setctty", "process_group", "given")

    def __init__(self) -> None:
        #: Keyword arguments of the native spawn.
        self.native: Dict[str, Any] = {}
        #: Pairs of a number in the child and a descriptor of this process, -1 to close the number.
        self.fds: List[Tuple[int, int]] = []
        #: Seconds from the start.
        self.deadline: Optional[float] = None
        self.kill_group = False
        self.setctty = -1
        #: Where the running version's own Popen has no `process_group` yet.
        self.process_group: Optional[int] = None
        #: The options that were given. A switch that is off is not among them.
        self.given: List[str] = []

    @property
    def leads_group(self) -> bool:
        """Whether the child must lead a process group, so that all of it can be killed."""
        return self.kill_group or self.deadline is not None


def take(given: Dict[str, Any]) -> Options:
    """Takes the options out of `given`. One that is None counts as not given."""
    options = Options()
    for name in sorted(NAMES.intersection(given)):
        value = given.pop(name)
        if value is None:
            continue
        option = _ALL[name]
        option.take(options, value)
        if option.asks(value):
            options.given.append(name)
    return options


def _integer(name: str, value: Any) -> int:
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError("%s must be an integer, not %r" % (name, value)) from None


def _within(name: str, value: Any, low: int, high: int) -> int:
    number = _integer(name, value)
    if not low <= number <= high:
        raise ValueError("%s must be %d to %d, not %d" % (name, low, high, number))
    return number


def _limit(resource: int, value: Any) -> int:
    number = _integer("rlimits: a limit of resource %d" % resource, value)
    if number == -1:
        return _UNLIMITED
    if not 0 <= number <= _UNLIMITED:
        raise ValueError(
            "rlimits: a limit of resource %d must not be negative (RLIM_INFINITY for none), not %d"
            % (resource, number)
        )
    return number


def _rlimits(options: Options, value: Any) -> None:
    if not isinstance(value, Mapping):
        raise TypeError(
            "rlimits must be a mapping of resource.RLIMIT_* to (soft, hard) or one number for both,"
            " not %r" % (value,)
        )
    limits = []
    for resource, limit in value.items():
        resource = _integer("rlimits: a resource", resource)
        try:
            soft, hard = limit
        except TypeError:
            soft = hard = limit
        except ValueError:
            raise ValueError(
                "rlimits: resource %d needs (soft, hard) or one number, not %r" % (resource, limit)
            ) from None
        soft, hard = _limit(resource, soft), _limit(resource, hard)
        if soft > hard:
            raise ValueError(
                "rlimits: the soft limit of resource %d is above the hard one: %r"
                % (resource, limit)
            )
        limits.append((resource, soft, hard))
    options.native["rlimits"] = limits


def _pdeathsig(options: Options, value: Any) -> None:
    options.native["pdeathsig"] = _within("pdeathsig", value, 0, 64)


def _no_new_privs(options: Options, value: Any) -> None:
    options.native["no_new_privs"] = bool(value)


def _cgroup(options: Options, value: Any) -> None:
    options.native["cgroup"] = os.fsencode(value)


def _nice(options: Options, value: Any) -> None:
    options.native["nice"] = _within("nice", value, -20, 19)


def _affinity(options: Options, value: Any) -> None:
    cpus = [_within("affinity: a CPU", cpu, 0, (1 << 16) - 1) for cpu in value]
    if not cpus:
        raise ValueError("affinity must name a CPU, see os.sched_getaffinity(0)")
    options.native["affinity"] = cpus


def _scheduler(options: Options, value: Any) -> None:
    try:
        policy, priority = value
    except TypeError:
        policy, priority = value, 0
    except ValueError:
        raise ValueError(
            "scheduler must be os.SCHED_* or (os.SCHED_*, priority), not %r" % (value,)
        ) from None
    options.native["scheduler"] = (
        _integer("scheduler: a policy", policy),
        _integer("scheduler: a priority", priority),
    )


def _setctty(options: Options, value: Any) -> None:
    if value is False:
        return
    options.setctty = 0 if value is True else _within("setctty", value, 0, 2**31 - 1)


def _fds(options: Options, value: Any) -> None:
    if not isinstance(value, Mapping):
        raise TypeError(
            "fds must be a mapping of the child's number to a descriptor or file, not %r" % (value,)
        )
    for child, parent in value.items():
        child = _within("fds: a number in the child", child, 0, 2**30 - 1)
        if parent is None:
            number = -1
        elif hasattr(parent, "fileno"):
            number = parent.fileno()
        else:
            number = parent
        if parent is not None:
            # -1 would close the number, as None does: it is a mistake more often than not.
            number = _within("fds: the descriptor for %d" % child, number, 0, 2**31 - 1)
        options.fds.append((child, number))


def _deadline(options: Options, value: Any) -> None:
    text = "deadline must be a number of seconds from the start, not %r" % (value,)
    # float() would read a text.
    if not hasattr(type(value), "__float__") and not hasattr(type(value), "__index__"):
        raise TypeError(text)
    try:
        seconds = float(value)
    except OverflowError:
        raise ValueError(text) from None
    if not seconds >= 0:
        raise ValueError(text)
    options.deadline = seconds


def _kill_group(options: Options, value: Any) -> None:
    options.kill_group = bool(value)


def _asks(value: Any) -> bool:
    """Most values ask for something, 0 too: a nice value, a processor, a terminal."""
    return True


def _is_not_false(value: Any) -> bool:
    return value is not False


class _Option:
    """One option: what takes its value, whether a value asks for anything, and the step of the
    start that it is, with what to do if that fails. The standard options' steps have the standard
    module's messages, and some options are no step of their own.
    """

    __slots__ = ("take", "asks", "step", "advice")

    def __init__(
        self,
        take: Callable[[Options, Any], None],
        asks: Callable[[Any], bool] = _asks,
        step: str = "",
        advice: str = "",
    ) -> None:
        self.take = take
        self.asks = asks
        self.step = step
        self.advice = advice


_ALL = {
    "affinity": _Option(
        _affinity,
        step="affinity",
        advice="affinity: no CPU of these may be used, see os.sched_getaffinity(0)",
    ),
    "cgroup": _Option(
        _cgroup,
        step="cgroup",
        advice="cgroup: the directory must be a cgroup's that this user may write to",
    ),
    "deadline": _Option(_deadline),
    "fds": _Option(_fds, asks=bool),
    "kill_group": _Option(_kill_group, asks=bool),
    "nice": _Option(
        _nice,
        step="nice",
        advice="nice: a lower value than now needs CAP_SYS_NICE or RLIMIT_NICE",
    ),
    "no_new_privs": _Option(
        _no_new_privs,
        asks=bool,
        step="no_new_privs",
        advice="no_new_privs: the kernel refused it",
    ),
    "pdeathsig": _Option(
        _pdeathsig,
        asks=bool,
        step="death_signal",
        advice="pdeathsig: from a thread with a PID namespace of its own it cannot be set",
    ),
    "rlimits": _Option(
        _rlimits,
        asks=bool,
        step="rlimit",
        advice="rlimits: a hard limit above the present one needs CAP_SYS_RESOURCE",
    ),
    "scheduler": _Option(
        _scheduler,
        step="scheduler",
        advice="scheduler: a real-time policy needs CAP_SYS_NICE or RLIMIT_RTPRIO",
    ),
    "setctty": _Option(
        _setctty,
        asks=_is_not_false,
        step="terminal",
        advice="setctty: the number must be a terminal that no other session has",
    ),
}

NAMES: FrozenSet[str] = frozenset(_ALL)

_ADVICE = {option.step: option.advice for option in _ALL.values() if option.step}


def own_error(error: StepError, options: Optional[Options]) -> Optional[OSError]:
    """The exception for a step that belongs to an option of ours; None for any other step."""
    if error.step == "descriptors" and error.what is not None and options is not None:
        # "NUMBER from DESCRIPTOR"
        child, _, parent = error.what.partition(" from ")
        if child not in [str(number) for number, _ in options.fds]:
            return None
        advice = "fds: %s cannot become the child's %s" % (parent or "closed", child)
        if error.errno == errno.EBADF and error.pid is None:
            advice = "fds: descriptor %s, for the child's %s, is not open" % (parent, child)
        elif error.errno == errno.EBADF:
            advice = "fds: the child's %s must be below RLIMIT_NOFILE" % child
        return OSError(error.errno, "%s (%s)" % (os.strerror(error.errno), advice))
    advice = _ADVICE.get(error.step, "")
    if not advice:
        return None
    message = "%s (%s)" % (os.strerror(error.errno), advice)
    if error.what is None:
        return OSError(error.errno, message)
    return OSError(error.errno, message, error.what)
