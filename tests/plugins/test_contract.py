"""Declaring plugins: what the decorators find out, and what they refuse."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import reactivex
from reactivex import Observable

from yukta_rx.plugins.contract import (
    FailureMode,
    NoConfig,
    PluginConfig,
    PluginKind,
    ProcessorPlugin,
    Shape,
    processor,
    spec_of,
    terminal,
    trigger,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    import reactivex as rx

pytestmark = pytest.mark.feature("EXT-01")


def plain(msg: Any, cfg: Any, ctx: Any) -> Any:
    """Double it.

    At length.
    """
    return msg


async def coroutine(msg: Any, cfg: Any, ctx: Any) -> Any:
    return msg


def generator(msg: Any, cfg: Any, ctx: Any) -> Iterator[Any]:
    yield msg


async def async_generator(msg: Any, cfg: Any, ctx: Any) -> AsyncIterator[Any]:
    yield msg


def observable(msg: Any, cfg: Any, ctx: Any) -> Observable[Any]:
    return reactivex.just(msg)


def hidden_observable(msg: Any, cfg: Any, ctx: Any) -> rx.Observable[Any]:
    return reactivex.just(msg)


def fresh(fn: Any) -> Any:
    """A function of its own, so that tests do not share the spec hung on it."""
    return type(fn)(fn.__code__, fn.__globals__, fn.__name__, fn.__defaults__, fn.__closure__)


def annotated(fn: Any) -> Any:
    copy = fresh(fn)
    copy.__annotations__ = fn.__annotations__
    copy.__doc__ = fn.__doc__
    copy.__qualname__ = fn.__qualname__
    return copy


@pytest.mark.parametrize(
    ("fn", "shape", "blocking"),
    [
        (plain, Shape.SYNC, True),
        (coroutine, Shape.ASYNC, False),
        (generator, Shape.GENERATOR, True),
        (async_generator, Shape.ASYNC_GENERATOR, False),
        (observable, Shape.OBSERVABLE, False),
        (hidden_observable, Shape.OBSERVABLE, False),
    ],
)
def test_shape_and_thread_follow_from_how_it_is_written(fn, shape, blocking) -> None:
    spec = spec_of(processor("X")(annotated(fn)))

    assert (spec.shape, spec.blocking) == (shape, blocking)


def test_what_an_author_declares_is_on_the_spec() -> None:
    class Options(PluginConfig):
        url: str

    def opened(cfg: Any, ctx: Any) -> None: ...

    declared = processor(
        "HTTP_GET",
        config=Options,
        ports=["error", "late"],
        default_timeout=lambda cfg: len(cfg.url) + 0.5,
        blocking=False,
        failure_mode=FailureMode.EMIT,
        open=opened,
        example={"url": "u"},
    )(annotated(plain))

    spec = spec_of(declared)
    assert spec.type == "HTTP_GET"
    assert spec.kind is PluginKind.PROCESSOR
    assert spec.config is Options
    assert spec.ports == ("error", "late")
    assert spec.timeout(Options(url="abc")) == 3.5
    assert spec.blocking is False
    assert spec.failure_mode is FailureMode.EMIT
    assert spec.open is opened
    assert spec.source == f"{__name__}:plain"
    assert spec.summary == "Double it."


def test_a_decorated_function_stays_callable() -> None:
    assert processor("X")(annotated(plain))(1, None, None) == 1


def test_default_timeout_is_30_seconds_and_for_a_trigger_none() -> None:
    def source(cfg: Any, ctx: Any) -> Iterator[Any]:
        yield 1

    assert spec_of(processor("P")(annotated(plain))).timeout(NoConfig()) == 30
    assert spec_of(terminal("T")(annotated(plain))).timeout(NoConfig()) == 30
    assert spec_of(trigger("S")(source)).timeout(NoConfig()) is None


def test_none_declared_as_timeout_is_no_limit() -> None:
    spec = spec_of(processor("P", default_timeout=None)(annotated(plain)))

    assert spec.timeout(NoConfig()) is None


def test_a_timeout_that_depends_on_an_unknown_configuration_is_the_default_for_now() -> None:
    spec = spec_of(processor("P", default_timeout=lambda cfg: cfg.ms)(annotated(plain)))

    assert spec.timeout(None) == 30


def test_a_trigger_may_choose_its_kind_of_iterator_when_called() -> None:
    @trigger("EITHER", blocking=False)
    def either(cfg: Any, ctx: Any) -> Iterator[Any] | AsyncIterator[Any]:
        return iter([1])

    assert spec_of(either).shape is Shape.SYNC


def test_a_class_is_a_stream_plugin() -> None:
    @processor("WINDOW", default_timeout=None)
    class Window(ProcessorPlugin):
        """Group things."""

        async def transform(self, stream: Any, cfg: Any, ctx: Any) -> AsyncIterator[Any]:
            async for msg in stream:
                yield msg

    spec = spec_of(Window)
    assert spec.shape is Shape.STREAM
    assert spec.summary == "Group things."
    assert spec.blocking is False
    assert isinstance(spec.fn(), Window)


def test_a_processor_with_too_few_parameters_is_refused_with_both_signatures() -> None:
    def two(msg: Any, cfg: Any) -> Any: ...

    with pytest.raises(TypeError, match=r"two.*\(msg, cfg, ctx\), but takes \(msg.*cfg.*\)"):
        processor("X")(two)


def test_a_trigger_that_wants_a_message_is_refused() -> None:
    with pytest.raises(TypeError, match=r"called as \(cfg, ctx\)"):
        trigger("X")(annotated(plain))


def test_a_hook_with_the_wrong_parameters_is_refused() -> None:
    def opened() -> None: ...

    with pytest.raises(TypeError, match=r"called as open\(cfg, ctx\)"):
        processor("X", open=opened)(annotated(plain))


@pytest.mark.parametrize("fn", [coroutine, async_generator, observable])
def test_blocking_is_refused_where_everything_runs_on_the_loop(fn) -> None:
    with pytest.raises(TypeError, match=r"ctx\.blocking"):
        processor("X", blocking=True)(annotated(fn))


@pytest.mark.parametrize("name", ["", "a b", "-x", "é"])
def test_a_type_that_is_no_id_is_refused(name) -> None:
    with pytest.raises(ValueError, match="plugin type"):
        processor(name)(annotated(plain))


@pytest.mark.parametrize(
    ("ports", "complaint"),
    [(["a b"], "port"), (["dropped"], "belongs to the engine"), (["x", "x"], "named twice")],
)
def test_ports_have_to_be_ids_of_the_plugins_own(ports, complaint) -> None:
    with pytest.raises(ValueError, match=complaint):
        processor("X", ports=ports)(annotated(plain))


def test_a_config_that_is_no_plugin_config_is_refused() -> None:
    with pytest.raises(TypeError, match="subclass of PluginConfig"):
        processor("X", config=dict)(annotated(plain))  # type: ignore[arg-type]


def test_exact_is_refused_where_the_number_of_outputs_can_vary() -> None:
    with pytest.raises(TypeError, match="exact"):
        processor("X", exact=True)(annotated(generator))


def test_only_functions_and_processor_classes_can_be_plugins() -> None:
    class Loose: ...

    with pytest.raises(TypeError, match="derive from ProcessorPlugin"):
        processor("X")(Loose)
    with pytest.raises(TypeError, match="only a processor can be a class"):
        terminal("X")(Loose)
    with pytest.raises(TypeError, match="is not a function"):
        processor("X")(partial(plain, 1))


def test_a_stream_plugin_needs_a_transform_and_no_arguments() -> None:
    class Bare(ProcessorPlugin): ...

    class Needy(ProcessorPlugin):
        def __init__(self, size: int) -> None: ...

        async def transform(self, stream: Any, cfg: Any, ctx: Any) -> AsyncIterator[Any]:
            yield 1

    class Waiting(ProcessorPlugin):
        async def transform(self, stream: Any, cfg: Any, ctx: Any) -> Any:
            return stream

    with pytest.raises(TypeError, match=r"transform\(stream, cfg, ctx\) is missing"):
        processor("X")(Bare)
    with pytest.raises(TypeError, match="made without arguments"):
        processor("X")(Needy)
    with pytest.raises(TypeError, match="yield in it"):
        processor("X")(Waiting)


def test_hooks_of_a_stream_plugin_are_its_methods() -> None:
    class Window(ProcessorPlugin):
        async def transform(self, stream: Any, cfg: Any, ctx: Any) -> AsyncIterator[Any]:
            yield 1

    with pytest.raises(TypeError, match="methods of the class"):
        processor("X", close=lambda cfg, ctx: None)(Window)


def test_something_undecorated_is_no_plugin() -> None:
    with pytest.raises(TypeError, match="decorate it"):
        spec_of(fresh(plain))


def test_the_catalogue_entry_is_plain_json() -> None:
    import json

    entry = spec_of(processor("X", example={"a": 1})(annotated(plain))).describe()

    assert json.loads(json.dumps(entry)) == entry
    assert entry["defaultTimeoutSeconds"] == 30
    assert entry["example"] == {"a": 1}
