"""The beginning of a payload as one short text, for lists that people read. Feature: CTL-05."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from yukta_rx.errors import UnserialisablePayloadError
from yukta_rx.model.claim import Claim
from yukta_rx.model.codec import dumps_plain

LONGEST: Final = 1000
"""Characters of a preview."""

_DEPTH: Final = 8


def preview(payload: Any, longest: int = LONGEST) -> str:
    """Return the payload as JSON, cut short; takes about the same time for any size.

    Args:
        payload: any value.
        longest: characters of the text at most.
    """
    try:
        if type(payload) is Claim and payload.preview is not None:
            text = payload.preview
        else:
            text = dumps_plain(_Start(longest).of(payload, _DEPTH)).decode()
    except UnserialisablePayloadError:
        # Half a surrogate pair, say.
        text = ascii(payload[:longest]) if isinstance(payload, str) else type(payload).__name__
    return text if len(text) <= longest else text[: longest - 1] + "…"


class _Start:
    """Copies of a value as much as a preview has room for."""

    def __init__(self, longest: int) -> None:
        self._left = longest

    def of(self, value: Any, depth: int) -> Any:
        self._left -= 2
        if isinstance(value, str):
            return self._text(value)
        if value is None or isinstance(value, bool | float):
            return value
        if isinstance(value, int):
            return value if value.bit_length() <= 64 else f"<a number of {value.bit_length()} bits>"
        if isinstance(value, Mapping):
            return self._mapping(value, depth) if depth else "…"
        if isinstance(value, list | tuple):
            return self._array(value, depth) if depth else "…"
        if type(value) is Claim:
            return value.__blob__
        return f"<{type(value).__name__}>"

    def _text(self, text: str) -> str:
        shown = text[: max(0, self._left) + 1]
        self._left -= len(shown)
        return shown

    def _mapping(self, value: Mapping[Any, Any], depth: int) -> dict[str, Any]:
        shown = {}
        for name, one in value.items():
            if self._left <= 0:
                break
            key = self._text(str(name))
            shown[key] = self.of(one, depth - 1)
        return shown

    def _array(self, value: list[Any] | tuple[Any, ...], depth: int) -> list[Any]:
        shown: list[Any] = []
        for one in value:
            if self._left <= 0:
                break
            shown.append(self.of(one, depth - 1))
        return shown
