"""How a plugin is written, found by inspection, with clear refusals.  Feature: EXT-01."""

from __future__ import annotations

import inspect
import re
from typing import TYPE_CHECKING, Any, get_origin, get_type_hints

from yukta_rx.plugins.spec import ProcessorPlugin, Shape

if TYPE_CHECKING:
    from collections.abc import Callable


def source_of(fn: Any) -> str:
    """Return `module:qualname`."""
    name = getattr(fn, "__qualname__", None)
    return f"{fn.__module__}:{name}" if name else repr(fn)


def function_shape(fn: Callable[..., Any], parameters: int, wanted: str) -> Shape:
    """Return the shape of a plugin function.

    Args:
        fn: the function.
        parameters: with how many arguments the engine calls it.
        wanted: how to write them, for the error.

    Raises:
        TypeError: it is a class, no function, or cannot be called with so many arguments.
    """
    if inspect.isclass(fn):
        raise TypeError(f"{source_of(fn)}: only a processor can be a class")
    if not inspect.isroutine(fn):
        raise TypeError(f"{fn!r} is not a function {wanted}")
    check_parameters(fn, parameters, wanted)
    if inspect.isasyncgenfunction(fn):
        return Shape.ASYNC_GENERATOR
    if inspect.iscoroutinefunction(fn):
        return Shape.ASYNC
    if inspect.isgeneratorfunction(fn):
        return Shape.GENERATOR
    return Shape.OBSERVABLE if _returns_observable(fn) else Shape.SYNC


def class_shape(cls: type[Any]) -> Shape:
    """Return the shape of a plugin class, which is always STREAM.

    Raises:
        TypeError: it is no ProcessorPlugin, or has not the methods of one.
    """
    where = source_of(cls)
    if not issubclass(cls, ProcessorPlugin):
        raise TypeError(f"{where}: a class has to derive from ProcessorPlugin")
    try:
        inspect.signature(cls).bind()
    except TypeError as error:
        raise TypeError(f"{where}: it has to be made without arguments: {error}") from None
    if cls.transform is ProcessorPlugin.transform:
        raise TypeError(f"{where}: transform(stream, cfg, ctx) is missing")
    if inspect.iscoroutinefunction(cls.transform):
        raise TypeError(
            f"{where}: transform returns a coroutine; yield in it, or make it a plain function"
        )
    check_parameters(cls.transform, 4, "transform(self, stream, cfg, ctx)")
    check_parameters(cls.open, 3, "open(self, cfg, ctx)")
    check_parameters(cls.close, 3, "close(self, cfg, ctx)")
    return Shape.STREAM


def check_parameters(fn: Callable[..., Any], count: int, wanted: str) -> None:
    """Check that `fn` can be called with `count` positional arguments.

    Raises:
        TypeError: it cannot; shows how it is called and what it takes.
    """
    signature = inspect.signature(fn)
    try:
        signature.bind(*(None,) * count)
    except TypeError:
        raise TypeError(
            f"{source_of(fn)}: it is called as {wanted}, but takes {signature}"
        ) from None


def blocking_of(fn: Callable[..., Any], shape: Shape, declared: bool | None) -> bool:
    """Return whether calls go to the thread pool: by default those that may wait.

    Raises:
        TypeError: `blocking=True` for what runs on the event loop by nature.
    """
    may_block = shape in (Shape.SYNC, Shape.GENERATOR)
    if declared and not may_block:
        raise TypeError(
            f"{source_of(fn)}: blocking=True is for a plain function or generator; this one runs"
            " on the event loop, where ctx.blocking(fn, ...) awaits a blocking call"
        )
    return may_block if declared is None else declared


def _returns_observable(fn: Callable[..., Any]) -> bool:
    try:
        returned = get_type_hints(fn).get("return")
    except (NameError, AttributeError, TypeError, SyntaxError):
        # Names that exist only for type checkers: judge by the text.
        returned = getattr(fn, "__annotations__", {}).get("return")
    if isinstance(returned, str):
        return re.match(r"[\w.]*\b(Observable|Flow)\b", returned) is not None
    # By name, since nothing here may import reactivex.
    bases = getattr(get_origin(returned) or returned, "__mro__", ())
    return any(
        base.__name__ in ("Observable", "ObservableBase")
        and base.__module__.startswith("reactivex")
        for base in bases
    )
