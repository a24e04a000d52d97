"""Starts of one event loop that await their execs, and their turn where no descriptor is left.

What waits is the event loop's own: :mod:`forkless.asyncio` and :mod:`forkless.trio` say how.
"""

from __future__ import annotations

import errno
from typing import Any, AsyncContextManager, Callable


class Starts:
    """The starts of one loop that await their execs."""

    #: Those starts, or their number.
    pending: Any

    async def make(self, start: Callable[[], Any]) -> Any:
        """Calls `start`. Where no descriptor is left for it, other starts give theirs back first.

        A start has two more descriptors until its exec. With a thousand at a time that may be more
        than a process has, although the children themselves would do with what there is.
        """
        try:
            return start()
        except OSError as error:
            if not self._gets_one_later(error):
                raise
        async with self.turn():
            while True:
                try:
                    return start()
                except OSError as error:
                    if not self._gets_one_later(error):
                        raise
                await self.one_ended()

    def _gets_one_later(self, error: OSError) -> bool:
        """Whether a start failed for want of a descriptor, and another will give one back."""
        return error.errno == errno.EMFILE and bool(self.pending)

    def turn(self) -> AsyncContextManager[Any]:
        """In it one start at a time waits."""
        raise NotImplementedError

    async def one_ended(self) -> None:
        """Waits until one of those that are pending has executed its program or failed."""
        raise NotImplementedError
