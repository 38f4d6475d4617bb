"""What travels as a reference is not kept apart once more by the row that it is in."""

from __future__ import annotations

from typing import Any

import pytest

from yukta_rx.durability.stores.checkpoints import CheckpointRow, encode_row
from yukta_rx.durability.stores.claims import claims_of, references_in
from yukta_rx.model.claim import Claim
from yukta_rx.model.message import trigger_message

pytestmark = pytest.mark.feature("DUR-02")


async def never(_blob: Any) -> Any:
    raise AssertionError("nobody reads it")


def test_a_reference_is_none_of_the_payloads_that_are_too_large_whatever_the_limit() -> None:
    small, large = Claim.of({"n": 0}, never), "x" * 200
    messages = [
        (None, trigger_message("lineage", "in", n, payload))
        for n, payload in enumerate((small, large))
    ]
    row = CheckpointRow.of(messages)
    limit = 50

    assert len(encode_row(CheckpointRow.of(messages[:1]))) > limit
    assert list(claims_of(row, limit)) == [1]
    assert references_in(row) == {0: small}
