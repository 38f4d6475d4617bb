"""The garbage collector while a server runs: it looks at less, and less often.  Feature: HA-01.

What a server has imported and opened by its start stays for its whole life, so the collector need
not look at it again, and what a run is made of goes when the run ends, without the collector. So
there is little for it to find, and each look holds the event loop.
"""

from __future__ import annotations

import gc
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

THRESHOLDS: Final = (10_000, 10, 10)
"""New containers until it looks at the young ones; looks until it looks at older ones, at all."""


@contextmanager
def calm_collector() -> Iterator[None]:
    """Have the collector leave alone what is there now, and look seldom at the rest.

    It is the collector of the whole process; who embeds an engine decides about it himself.
    """
    before = gc.get_threshold()
    # Not collected first: that would hold the loop, and what little is dead by now may stay.
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
