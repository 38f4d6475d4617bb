"""The fence: a write of a server that does not lead any more changes nothing.

Each partition has one row that holds the epoch of its leader. Who takes over raises it, in the
first thing that it writes. Every write joins that row with `FOR SHARE`: the lock re-checks the
newest version of the row, so that a takeover waits for the writes under way, and every write that
comes later finds no row. A bare `WHERE EXISTS` would look at its snapshot only, and a write could
slip through between the two. The row that a lease renews is another one, since a renewal would
wait for the writes then.

Feature: DUR-04.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from yukta_rx.errors import StaleLeaderError

if TYPE_CHECKING:
    from collections.abc import Sequence

FENCE = "SELECT epoch FROM leader_epoch WHERE part = $1 AND epoch = $2 FOR SHARE"
"""The row of a partition, if it still has this epoch."""


_HELD = f"SELECT pg_current_xact_id()::text FROM ({FENCE}) AS held"


async def hold_fence(connection: Any, part: int, epoch: int) -> str:
    """Keep anybody from taking over before the transaction has ended.

    Returns:
        The transaction's id, by which it is known later what became of it.

    Raises:
        StaleLeaderError: somebody has.
    """
    transaction: str | None = await connection.fetchval(_HELD, part, epoch)
    if transaction is None:
        raise stale(part, epoch)
    return transaction


def fenced(change: str) -> str:
    """One statement that makes a change behind the fence; `check` what it returns.

    Args:
        change: an INSERT ... SELECT, UPDATE or DELETE whose rows come from a join with `fence`, so
            that there are none where the fence has no row. `$1` and `$2` are part and epoch.
    """
    return (
        f"WITH fence AS ({FENCE}), done AS ({change} RETURNING 1) "
        "SELECT (SELECT count(*) FROM fence) AS fence, (SELECT count(*) FROM done) AS done"
    )


def check(rows: Sequence[Any], part: int, epoch: int) -> int:
    """How many rows a fenced statement changed.

    Raises:
        StaleLeaderError: another server leads by now, and nothing was changed.
    """
    [row] = rows
    if not row["fence"]:
        raise stale(part, epoch)
    return int(row["done"])


def stale(part: int, epoch: int) -> StaleLeaderError:
    """Return the error of a write that came too late."""
    return StaleLeaderError(
        f"another server leads partition {part} by now: epoch {epoch} is over", epoch=epoch
    )


RAISE = (
    "INSERT INTO leader_epoch (part, epoch, holder, taken_at) VALUES ($1, 1, $2, now()) "
    "ON CONFLICT (part) DO UPDATE SET epoch = leader_epoch.epoch + 1, holder = excluded.holder, "
    "taken_at = excluded.taken_at RETURNING epoch"
)


async def raise_epoch(connection: Any, part: int, holder: str) -> int:
    """Take a partition over: every write of whoever led it fails from now on.

    Waits for the writes that are under way. Whoever calls it holds the lock of the partition.

    Args:
        connection: a connection to the database.
        part: the partition.
        holder: who takes it, for people.

    Returns:
        The new epoch.
    """
    return int(await connection.fetchval(RAISE, part, holder))
