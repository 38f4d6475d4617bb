"""What foreign code raises, as an error that does no more than report itself. Feature: ENG-02."""

from __future__ import annotations

import asyncio


def as_error(raised: BaseException) -> BaseException:
    """`raised`, or an error in its place where raising it again would do something.

    StopIteration would end the generator or coroutine that it is raised in, CancelledError a task
    that nobody cancelled, and SystemExit of a thread the process.
    """
    if isinstance(raised, StopIteration):
        return RuntimeError("the function raised StopIteration")
    if isinstance(raised, asyncio.CancelledError):
        return RuntimeError(f"the call was cancelled from inside: {raised!r}")
    if isinstance(raised, KeyboardInterrupt | SystemExit):
        return RuntimeError(f"the function raised {raised!r}")
    return raised
