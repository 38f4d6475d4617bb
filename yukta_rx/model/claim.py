"""Claim: what travels in the place of a payload that is kept apart.

It is made where a node emits the payload and stays the same object on its way, so what waits
anywhere in a run holds a reference and not the payload. Until the bytes are kept it has them
itself: a payload that could not be written is never lost to those who are to work on it.

Feature: DUR-02.
"""

from __future__ import annotations

from hashlib import sha256 as hash_of
from typing import TYPE_CHECKING, Any, Final

from yukta_rx.errors import StoreUnavailableError
from yukta_rx.model import codec
from yukta_rx.model.codec import Blob

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

OWN: Final = 300
"""Bytes that a claim takes itself."""


class Claim:
    """Stands for a payload as long as nobody looks at it.

    Attributes:
        sha256: hex digest of the payload's text.
        size: bytes of that text.
        owner: the run that the text is kept for, as far as is known; empty for none.
        text: the text, until it is kept.
        preview: the beginning of the payload as people are shown it; None if nobody made one.
        reader: reads what is kept; None where that is not known, as behind a file.
    """

    __slots__ = ("owner", "preview", "reader", "sha256", "size", "text")

    def __init__(
        self,
        sha256: str,
        size: int,
        *,
        owner: str = "",
        text: bytes | None = None,
        reader: Callable[[Blob], Awaitable[Any]] | None = None,
    ) -> None:
        self.sha256 = sha256
        self.size = size
        self.owner = owner
        self.text = text
        self.preview: str | None = None
        self.reader = reader

    @classmethod
    def of(cls, payload: Any, reader: Callable[[Blob], Awaitable[Any]]) -> Claim:
        """Make the one of a payload, which has to be kept by whoever writes down the message.

        Raises:
            UnserialisablePayloadError: it cannot be stored; `pointer` names the place.
        """
        text = codec.encode(payload)
        return cls(hash_of(text).hexdigest(), len(text), text=text, reader=reader)

    @property
    def __blob__(self) -> Blob:
        """What stands for it in a text."""
        return Blob(self.sha256, self.size)

    def kept(self, owner: str) -> None:
        """The text is kept for a run now."""
        self.owner = owner
        self.text = None

    async def open(self) -> Any:
        """The payload, made anew each time.

        Raises:
            StoreUnavailableError: it is missing or damaged, or cannot be read; names the blob.
        """
        text, reader = self.text, self.reader
        if text is not None:
            return codec.decode(text)
        if reader is None:
            told = f"blob {self.sha256} of {self.size} bytes: nothing here could read it"
            raise StoreUnavailableError(told, sha256=self.sha256)
        return await reader(self.__blob__)

    def __repr__(self) -> str:
        return f"Claim({self.sha256}, {self.size} bytes)"

    def __sizeof__(self) -> int:
        return OWN + len(self.text or b"") + len(self.preview or "")

    def __copy__(self) -> Claim:
        return self

    def __deepcopy__(self, _memo: dict[int, Any]) -> Claim:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return _revive, (self.sha256, self.size, self.owner, self.text, self.preview)


def _revive(sha256: str, size: int, owner: str, text: bytes | None, preview: str | None) -> Claim:
    claim = Claim(sha256, size, owner=owner, text=text)
    claim.preview = preview
    return claim
