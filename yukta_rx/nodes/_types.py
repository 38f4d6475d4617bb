"""Option types that several node types share: numbers that take no look-alike."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from yukta_rx.nodes._paths import check_path

DAY_MS = 86_400_000

Milliseconds = Annotated[int, Field(strict=True, ge=0, le=DAY_MS)]
"""A wait of at most a day; `true` and `"5"` are no numbers."""

Path = Annotated[str, AfterValidator(check_path)]
"""A dotted path into the payload."""
