"""Children that lead a process group: signals to all of it, and deadlines that kill all of it.

A group's number may come to mean another group once its leader has been waited for and no member is
left. So a signal goes by the leader's pidfd (Linux 6.9 and later), or by the number as long as the
leader has not been waited for.
"""

from __future__ import annotations

import errno
import heapq
import itertools
import os
import select
import signal
import sys
import threading
import time

from . import _forkless
from ._native import Child

# Not from `typing`, whose import takes as long as that of `subprocess`.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, List, Optional

PIDFD_SIGNAL_PROCESS_GROUP = 1 << 2
#: Seconds. One call of poll(2), and so of a selector, takes no more than 2**31 milliseconds.
LONGEST_WAIT = 1e6


class Leader:
    """A child that leads a process group."""

    __slots__ = (
        "child",
        "lock",
        "reaped",
        "seconds",
        "moment",
        "entry",
        "expired",
        "told",
        "quiet",
    )

    def __init__(self, child: Child, lock: Any, seconds: Optional[float]) -> None:
        self.child = child
        #: Popen's own: held by whoever reaps the child.
        self.lock = lock
        self.reaped = False
        #: The deadline as it was given, and its moment by time.monotonic().
        self.seconds = seconds
        self.moment = None if seconds is None else time.monotonic() + seconds
        #: The watch's.
        self.entry: Optional[List[Any]] = None
        #: Whether the deadline has killed something, and whether that has been told.
        self.expired = False
        self.told = False
        #: communicate() tells it, with the output; the wait in it does not.
        self.quiet = False

    def signal(self, number: int) -> bool:
        """Sends a signal to the group. False where nobody is left in it.

        Raises PermissionError as os.killpg() does.
        """
        # Held for the call: the last reference closes the pidfd, and `reap` may come meanwhile.
        child = self.child
        if child.pidfd != -1:
            try:
                signal.pidfd_send_signal(child.pidfd, number, None, PIDFD_SIGNAL_PROCESS_GROUP)
                return True
            except ProcessLookupError:
                # A child that has not got as far as its group is all of it.
                return self._signal_alone(number)
            except OSError as error:
                # A kernel before 6.9, or a filter. EPERM of the kernel's own comes again below.
                if error.errno not in (errno.EINVAL, errno.ENOSYS, errno.EPERM):
                    raise
        if self._signal_number(os.killpg, number):
            return True
        return self._signal_alone(number)

    def _signal_alone(self, number: int) -> bool:
        # A zombie takes any signal.
        return not self.has_ended() and self._signal_number(os.kill, number)

    def _signal_number(self, send: Callable[[int, int], None], number: int) -> bool:
        # Not a blocking one: a signal's handler may be here in the midst of a wait of its own
        # thread. Without the lock the moment between waitpid() and `reaped` is left, as with the
        # standard send_signal().
        held = self.lock.acquire(False)
        try:
            if self.reaped:
                return False
            send(self.child.pid, number)
            return True
        except ProcessLookupError:
            return False
        finally:
            if held:
                self.lock.release()

    def has_ended(self) -> bool:
        """Whether the child has ended, reaped or not."""
        return self.reaped or self._ends_within(0)

    def _ends_within(self, timeout: Optional[float]) -> bool:
        child = self.child
        if child.pidfd != -1:
            return _readable(child.pidfd, timeout)
        return _look_for_end(child.pid, timeout)

    def wait_without_lock(self, timeout: Optional[float]) -> bool:
        """Waits until the child can be reaped, and kills it at its deadline. False when the time is
        over.

        A blocking waitpid() holds the lock, and then no other thread could signal the group by its
        number.
        """
        if self.reaped:
            return True
        left = self.left()
        if left is not None and (timeout is None or left < timeout):
            if self._ends_within(left):
                return True
            self.expire()
            timeout = None if timeout is None else timeout - left
        return self._ends_within(timeout)

    def left(self) -> Optional[float]:
        """The seconds to the deadline; None without one and behind it."""
        if self.moment is None or self.expired:
            return None
        return max(0.0, self.moment - time.monotonic())

    def expire(self) -> None:
        """The deadline: kills the group."""
        # Before the signal: whoever waits wakes up by it, and looks. Of a child that has ended in
        # time only the output can be cut off, while somebody reads it.
        # Never taken back here: whoever waits and the watch may both come, and the second finds the
        # child that the first has killed.
        if self.quiet or not self.has_ended():
            self.expired = True
        try:
            self.signal(signal.SIGKILL)
        except OSError:
            # The group has changed its user: nothing can be done about it.
            self.expired = False

    def reap(self) -> None:
        """Called when the child has been reaped."""
        self.reaped = True
        if self.child.pidfd != -1 and _forkless.reaches_group(self.child.pidfd):
            return
        # Nobody is left to kill, or nobody that could be: neither the watch nor the Popen's owner
        # has a use for the pidfd.
        self.child = Child(self.child.pid, -1)
        # By one assignment, since a finalizer may be here in the midst of `_Watch.add`.
        if self.entry is not None and not self.expired:
            self.entry[2] = None
            _watch.look_again()

    @property
    def is_over(self) -> bool:
        """Whether the child has been reaped, and nobody is left to kill."""
        return self.reaped and self.child.pidfd == -1


def wait_for_end(pid: int, timeout: Optional[float]) -> bool:
    """Waits for a child that nobody has reaped, and does not reap it. False when the time is over.

    Other greenlets run meanwhile, where gevent or eventlet have put theirs into the modules.
    """
    try:
        pidfd = os.pidfd_open(pid)
    except (AttributeError, OSError):
        return _look_for_end(pid, timeout)
    try:
        return _readable(pidfd, timeout)
    finally:
        os.close(pidfd)


def _look_for_end(pid: int, timeout: Optional[float]) -> bool:
    end = None if timeout is None else time.monotonic() + timeout
    pause = 0.001
    while True:
        try:
            options = os.WEXITED | os.WNOHANG | os.WNOWAIT
            if os.waitid(os.P_PID, pid, options) is not None:
                return True
        except ChildProcessError:
            return True
        if end is not None and time.monotonic() >= end:
            return False
        time.sleep(pause)
        pause = min(pause * 2, 0.05)


def _readable(fd: int, timeout: Optional[float]) -> bool:
    end = None if timeout is None else time.monotonic() + timeout
    while True:
        left = None if end is None else max(0.0, end - time.monotonic())
        part = None if left is None else min(left, LONGEST_WAIT)
        if _is_readable_within(fd, part):
            return True
        if part is not None and part == left:
            return False


def _is_readable_within(fd: int, seconds: Optional[float]) -> bool:
    if not hasattr(select, "poll"):
        # eventlet has taken it away.
        return bool(select.select([fd], [], [], seconds)[0])
    poller = select.poll()
    poller.register(fd, select.POLLIN)
    return bool(poller.poll(None if seconds is None else seconds * 1000))


class _Watch:
    """One thread that kills the groups whose deadlines have come. It ends when it has none."""

    def __init__(self) -> None:
        # Lists of the moment, a number that keeps equal moments apart, and the leader or None.
        self.queue: List[List[Any]] = []
        self.serial = itertools.count()
        self.thread: Optional[threading.Thread] = None

    @property
    def condition(self) -> threading.Condition:
        # Not made before the first deadline: by then gevent or eventlet may have put locks of their
        # own into the module.
        made = vars(self).get("made")
        if made is None:
            # Reentrant: a signal's handler may start a child with a deadline in the midst of `add`.
            made = vars(self).setdefault("made", threading.Condition(threading.RLock()))
        condition: threading.Condition = made
        return condition

    def add(self, leader: Leader) -> None:
        assert leader.moment is not None
        leader.entry = [leader.moment, next(self.serial), leader]
        with self.condition:
            heapq.heappush(self.queue, leader.entry)
            if self.thread is None:
                self.thread = self._start()
            elif self.queue[0] is leader.entry:
                self.condition.notify()

    def look_again(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        """An entry has been emptied. The thread may wait for the last one."""
        # At the interpreter's end the thread stands still, and may hold the lock.
        if self.thread is not None and not is_finalizing():
            with self.condition:
                self.condition.notify()

    def _start(self) -> Optional[threading.Thread]:
        try:
            thread = threading.Thread(target=self._run, name="forkless deadlines", daemon=True)
            thread.start()
        except RuntimeError:
            # A subinterpreter has no daemon threads, or none at all, and an interpreter at its end
            # none either. A wait kills as well, at the deadline.
            return None
        return thread

    def _run(self) -> None:
        while True:
            with self.condition:
                while self.queue and self.queue[0][2] is None:
                    heapq.heappop(self.queue)
                if not self.queue:
                    self.thread = None
                    return
                left = self.queue[0][0] - time.monotonic()
                if left > 0:
                    # A limit, since threading refuses a time that no clock reaches.
                    self.condition.wait(min(left, 3600.0))
                    continue
                leader = heapq.heappop(self.queue)[2]
            if leader is not None:
                leader.expire()
            del leader


_watch = _Watch()


def watch(leader: Leader) -> None:
    """Kills the group at the leader's deadline, whether anybody waits for the child or not."""
    if not leader.is_over:
        _watch.add(leader)


def is_watching() -> bool:
    """Whether there is a thread for it."""
    return _watch.thread is not None


def _after_fork() -> None:
    # The thread stayed in the parent, and so did the children.
    global _watch
    _watch = _Watch()


os.register_at_fork(after_in_child=_after_fork)
