"""Plugin loggers: lines that know where they come from."""

from __future__ import annotations

import pytest

from yukta_rx.plugins.logs import DefaultPluginLoggerFactory, LoggerContext, LogLine

CONTEXT = LoggerContext("run-1", "local", "n", "HTTP_GET")


@pytest.mark.feature("EXT-02")
def test_a_line_carries_run_session_and_plugin() -> None:
    written: list[LogLine] = []
    logger = DefaultPluginLoggerFactory(written.append).create(CONTEXT)

    logger.write("one\ntwo")

    assert written == [
        LogLine(CONTEXT, "stdout", "INFO", "one"),
        LogLine(CONTEXT, "stdout", "INFO", "two"),
    ]


@pytest.mark.feature("EXT-02")
def test_each_level_has_its_stream() -> None:
    written: list[LogLine] = []
    logger = DefaultPluginLoggerFactory(written.append).create(CONTEXT)

    logger.debug("d")
    logger.info("i")
    logger.warning("w")
    logger.error("e")

    assert [(line.level, line.stream) for line in written] == [
        ("DEBUG", "stdout"),
        ("INFO", "stdout"),
        ("WARNING", "stderr"),
        ("ERROR", "stderr"),
    ]


@pytest.mark.feature("EXT-02")
def test_the_level_follows_the_stream_when_none_is_given() -> None:
    written: list[LogLine] = []

    DefaultPluginLoggerFactory(written.append).create(CONTEXT).write("x", "stderr")

    assert written[0].level == "ERROR"


@pytest.mark.feature("EXT-02")
def test_the_stream_of_the_engine_is_not_a_plugins() -> None:
    logger = DefaultPluginLoggerFactory([].append).create(CONTEXT)

    with pytest.raises(ValueError, match="no log stream 'engine'"):
        logger.write("x", "engine")
