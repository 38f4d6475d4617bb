"""Results whose payloads travelled as references, with their payloads for those who read them.

Features: DUR-02, OBS-03.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from yukta_rx.model.result_lines import claim_in

if TYPE_CHECKING:
    from yukta_rx.model.results import ResultEvent


def is_closed(event: ResultEvent) -> bool:
    """Whether a result has a reference in place of its payload."""
    return claim_in(event) is not None


async def opened_result(event: ResultEvent) -> ResultEvent:
    """The result with its payload.

    Raises:
        StoreUnavailableError: that cannot be read; names the blob.
    """
    if (claim := claim_in(event)) is None:
        return event
    return with_payload(event, await claim.open())


def with_payload(event: ResultEvent, payload: Any) -> ResultEvent:
    """The same result with its payload, or with what stands for that."""
    assert event.message is not None, "only a result has a payload"
    message = msgspec.structs.replace(event.message, uid=event.message_id, payload=payload)
    return msgspec.structs.replace(event, message=message)
