"""Changing a payload without changing it: every message has its own.  Feature: ENG-02."""

from __future__ import annotations

from typing import Any

from yukta_rx.errors import BadInputError
from yukta_rx.nodes._paths import index_in, kind_of, segments


class Edit:
    """A payload under change: containers on the way to a change are copied, once each.

    Attributes:
        root: the payload as it is now.

    Raises:
        BadInputError: a place lies inside something that is no object or array.
    """

    __slots__ = ("_fresh", "root")

    def __init__(self, root: Any) -> None:
        self.root = root
        # Identities of the containers made here; `root` keeps them alive, so none is reused.
        self._fresh: set[int] = set()

    def set(self, path: str, value: Any) -> None:
        """Put a value at a path; objects that are missing on the way are made."""
        parts = segments(path)
        if not parts:
            self.root = value
            return
        holder = self._holder(path, parts)
        self._put(holder, parts[-1], value, path)

    def remove(self, path: str) -> None:
        """Take out what stands at a path, if anything does."""
        parts = segments(path)
        if not parts:
            self.root = None
        elif self._has(parts):
            holder = self._holder(path, parts)
            del holder[parts[-1] if isinstance(holder, dict) else int(parts[-1])]

    def _has(self, parts: tuple[str, ...]) -> bool:
        value = self.root
        for part in parts:
            try:
                value = value[part] if isinstance(value, dict) else value[index_in(value, part)]
            except (LookupError, TypeError):
                return False
        return True

    def _holder(self, path: str, parts: tuple[str, ...]) -> Any:
        """Return the container of the last part, copied along the whole way from the root."""
        holder = self.root = self._own(self.root, path)
        for part in parts[:-1]:
            below = self._get(holder, part, path)
            owned = self._own(below, path)
            if owned is not below:
                self._put(holder, part, owned, path)
            holder = owned
        return holder

    def _own(self, value: Any, path: str) -> Any:
        if id(value) in self._fresh:
            return value
        if isinstance(value, dict):
            copy: Any = dict(value)
        elif isinstance(value, list | tuple):
            copy = list(value)
        else:
            raise BadInputError(f"cannot set or remove `{path}`: it lies inside {kind_of(value)}")
        self._fresh.add(id(copy))
        return copy

    def _get(self, holder: Any, part: str, path: str) -> Any:
        if isinstance(holder, dict):
            return holder.get(part, {})
        return holder[self._index(holder, part, path)]

    def _put(self, holder: Any, part: str, value: Any, path: str) -> None:
        holder[part if isinstance(holder, dict) else self._index(holder, part, path)] = value

    @staticmethod
    def _index(holder: list[Any], part: str, path: str) -> int:
        try:
            index = index_in(holder, part)
            holder[index]
        except (LookupError, TypeError):
            raise BadInputError(
                f"cannot set `{path}`: the array has {len(holder)} elements and no `{part}`"
            ) from None
        return index
