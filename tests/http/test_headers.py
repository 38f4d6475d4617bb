"""Accept, entity tags, idempotency keys, Host and Origin."""

from __future__ import annotations

import pytest

from yukta_rx.errors import BadRequestError, HostNotAllowedError, OriginNotAllowedError
from yukta_rx.http.headers import (
    Tags,
    accepts_events,
    accepts_json,
    entity_tags,
    idempotency_key,
    prefers_json,
    usable_request_id,
)
from yukta_rx.http.host_origin import HostOrigin

LOOPBACK = HostOrigin(
    ("localhost", "127.0.0.1", "::1"), ("http://localhost", "http://127.0.0.1", "http://[::1]")
)


@pytest.mark.parametrize(
    "header",
    [None, "", "*/*", "application/json", "application/*;q=0.1", "text/html, */*;q=0.8"],
)
def test_json_is_acceptable(header: str | None) -> None:
    assert accepts_json(header)


@pytest.mark.parametrize(
    "header",
    ["text/html", "text/event-stream", "application/json;q=0", "application/json;q=0, */*"],
)
def test_json_is_not_acceptable(header: str) -> None:
    assert not accepts_json(header)


def test_an_event_stream_is_acceptable_unless_it_is_left_out() -> None:
    assert accepts_events("text/event-stream")
    assert accepts_events("*/*")
    assert not accepts_events("application/json")


@pytest.mark.feature("OBS-03")
@pytest.mark.parametrize(
    ("header", "json"),
    [
        (None, False),
        ("*/*", False),
        ("text/event-stream", False),
        ("text/html", False),
        ("application/json", True),
        ("application/json, text/plain, */*", True),
        ("application/json, text/event-stream", False),
        ("application/json;q=0.9, text/event-stream", False),
        ("application/json, text/event-stream;q=0.5", True),
    ],
)
def test_json_is_sent_to_those_who_name_it(header: str | None, json: bool) -> None:
    assert prefers_json(header) is json


@pytest.mark.parametrize(
    ("header", "tags"),
    [
        (None, None),
        ("*", Tags(every=True)),
        ('"a"', Tags(strong=("a",))),
        ('"a", W/"b" , "c"', Tags(strong=("a", "c"), weak=("b",))),
        ("a1b2", Tags(strong=("a1b2",))),
        ('""', Tags(strong=("",))),
    ],
)
def test_entity_tags_are_read(header: str | None, tags: Tags | None) -> None:
    assert entity_tags("If-Match", header) == tags


@pytest.mark.parametrize("header", ['"a', 'a "b"', '"a" "b"', '"a",,', "a, b"])
def test_what_is_no_list_of_tags_is_refused(header: str) -> None:
    with pytest.raises(BadRequestError) as caught:
        entity_tags("If-Match", header)

    assert caught.value.members == {"parameter": "If-Match"}


@pytest.mark.feature("ADM-02")
@pytest.mark.parametrize(
    ("header", "key"),
    [
        (None, None),
        ('"8e03"', "8e03"),
        ("8e03", "8e03"),
        (r'"a\"b"', 'a"b'),
        ("k" * 255, "k" * 255),
    ],
)
def test_an_idempotency_key_is_a_structured_string_or_a_token(
    header: str | None, key: str | None
) -> None:
    assert idempotency_key(header) == key


@pytest.mark.parametrize("header", ["", '""', "a b", "é", "k" * 256])
def test_a_key_that_is_not_visible_characters_is_refused(header: str) -> None:
    with pytest.raises(BadRequestError, match="1 to 255"):
        idempotency_key(header)


@pytest.mark.parametrize("given", [None, "", "a b", "a\x00b", "é", "x" * 129])
def test_a_request_id_that_is_not_fit_for_a_log_is_not_taken(given: str | None) -> None:
    assert usable_request_id(given) is None


# --- Host and Origin -----------------------------------------------------------------------------


@pytest.mark.feature("SEC-01")
@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:8080", "127.0.0.1:1", "[::1]:8080", "::1", "localhost."]
)
def test_a_known_host_is_let_in(host: str) -> None:
    LOOPBACK.check("POST", host, None)

    assert LOOPBACK.allows("http://localhost:3000")


@pytest.mark.feature("SEC-01")
@pytest.mark.parametrize(
    "host",
    [
        None,
        "",
        "evil.example",
        "localhost.evil.example",
        "localhost@evil.example",
        "evil.example#localhost",
        "127.0.0.1.evil.example",
        "localhost:port",
        "localhost/x",
        "[::1",
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_an_unknown_host_is_refused_for_every_method(method: str, host: str | None) -> None:
    with pytest.raises(HostNotAllowedError):
        LOOPBACK.check(method, host, None)


def test_a_host_with_a_port_is_known_on_that_port_only() -> None:
    doors = HostOrigin(("box:81",), ())

    doors.check("GET", "box:81", None)

    with pytest.raises(HostNotAllowedError):
        doors.check("GET", "box:82", None)


@pytest.mark.feature("SEC-01")
@pytest.mark.parametrize(
    "origin",
    ["null", "http://evil.example", "https://localhost:444", "http://localhost.evil.example", "x"],
)
def test_a_foreign_origin_may_read_but_not_change(origin: str) -> None:
    LOOPBACK.check("GET", "localhost", origin)

    with pytest.raises(OriginNotAllowedError):
        LOOPBACK.check("POST", "localhost", origin)


def test_a_page_of_the_server_itself_may_change_things() -> None:
    doors = HostOrigin(("box.example",), ())

    doors.check("POST", "box.example:8080", "http://box.example:8080")

    with pytest.raises(OriginNotAllowedError):
        doors.check("POST", "box.example:8080", "http://box.example:9090")
