"""Start any program at the cost of vfork, whatever the memory of this process.

>>> from forkless import subprocess
>>> subprocess.run(["echo", "hello"], capture_output=True, text=True).stdout
'hello\\n'

=====================  =========================================================================
`forkless.subprocess`  the standard module, without fork, with more options in place of preexec_fn
`forkless.asyncio`     the same for asyncio: its loop never waits for a start
`forkless.pty`         a child on a new terminal
`system`, `popen`      those of os, without a shell where that is the same
`install`              all this for a program that imports the standard modules
`bench`, `diagnose`    what forks cost here
=====================  =========================================================================

Everything is loaded when it is first used: ``import forkless`` alone imports nothing else.

PYTEST_DONT_REWRITE
"""
# The last word is for pytest. It rewrites the asserts of a plugin's whole package, and warns of one
# that is imported already, as by ``python -m forkless -m pytest``.

from __future__ import annotations

if __doc__ is None:
    # Under -OO.
    __doc__ = "PYTEST_DONT_REWRITE"

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, List

    from . import anyio as anyio
    from . import asyncio as asyncio
    from . import bench as bench
    from . import pty as pty
    from . import subprocess as subprocess
    from . import trio as trio
    from ._diagnose import diagnose as diagnose
    from ._install import install as install
    from ._install import uninstall as uninstall
    from ._popen import popen as popen
    from ._shell import system as system

__all__ = [
    "ForklessWarning",
    "asyncio",
    "bench",
    "diagnose",
    "install",
    "popen",
    "pty",
    "subprocess",
    "system",
    "uninstall",
]


class ForklessWarning(RuntimeWarning):
    """Something that forkless cannot take over, such as a `preexec_fn`."""


_MODULES = frozenset(("anyio", "asyncio", "bench", "pty", "subprocess", "trio"))
_FUNCTIONS = {
    "diagnose": "._diagnose",
    "install": "._install",
    "popen": "._popen",
    "system": "._shell",
    "uninstall": "._install",
}


if TYPE_CHECKING:
    __version__: str
else:
    # Type checkers would take every name for one of this package.
    def __getattr__(name: str) -> Any:
        if name in _MODULES:
            from importlib import import_module

            return import_module("." + name, __name__)
        if name in _FUNCTIONS:
            from importlib import import_module

            value = getattr(import_module(_FUNCTIONS[name], __name__), name)
            globals()[name] = value
            return value
        if name == "__version__":
            from importlib.metadata import version

            return version("forkless")
        raise AttributeError("module %r has no attribute %r" % (__name__, name))


def __dir__() -> List[str]:
    return sorted(set(globals()) | set(__all__))
