"""CPython's tests that forkless does not pass, each with the reason.

A key is ``MODE TEST`` as `run.py` prints it, with * for any text; a value is the reason, one line.
The guide (docs/guide/python.md) has the same list for users.
"""

_ASYNCIO = "install test.test_asyncio.test_subprocess."

DEVIATIONS = {
    _ASYNCIO + "SubprocessFastWatcherTests.*": (
        "a FastChildWatcher takes the status of every child of the process, and so of those that it"
        " was not told of: they report 255. asyncio warns of it, and has none from 3.14 on"
    ),
    _ASYNCIO + "GenericWatcherTests.test_create_subprocess_fails_with_inactive_watcher": (
        "no child watcher is asked, so none that is inactive can refuse the start"
    ),
    _ASYNCIO + "SubprocessThreadedWatcherTests.test_pid_not_reaped_before_exit_published": (
        "it waits for the watcher's thread, and there is none. The number stays the child's all the"
        " same until the loop tells its end"
    ),
}
