"""What foreign code raises, where raising it again would do more than report it."""

from __future__ import annotations

import asyncio

import pytest

from yukta_rx.streams.faults import as_error

pytestmark = pytest.mark.feature("ENG-02")


@pytest.mark.parametrize(
    ("raised", "text"),
    [
        (StopIteration(1), "the function raised StopIteration"),
        (asyncio.CancelledError(), "the call was cancelled from inside"),
        (SystemExit(3), "the function raised SystemExit(3)"),
        (KeyboardInterrupt(), "the function raised KeyboardInterrupt()"),
    ],
)
def test_what_would_stop_something_becomes_an_error(raised: BaseException, text: str) -> None:
    error = as_error(raised)

    assert type(error) is RuntimeError
    assert text in str(error)


@pytest.mark.parametrize("raised", [LookupError(), GeneratorExit(), StopAsyncIteration()])
def test_anything_else_stays_what_it_is(raised: BaseException) -> None:
    assert as_error(raised) is raised
