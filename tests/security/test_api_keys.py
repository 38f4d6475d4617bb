"""KeyRing: which key is good for what; and the settings that it is made from."""

from __future__ import annotations

import hmac
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yukta_rx.config.checks import check
from yukta_rx.config.load import load_settings
from yukta_rx.config.settings import Role, Settings
from yukta_rx.errors import ConfigError, NotAuthenticatedError
from yukta_rx.http.auth import ADDRESSES, ATTEMPTS, WINDOW, Attempts
from yukta_rx.http.browser_sessions import CAPACITY, BrowserSessions
from yukta_rx.security import api_keys
from yukta_rx.security.api_keys import Grant, KeyRing, hashed, new_key

pytestmark = pytest.mark.feature("SEC-01")

NOW = datetime(2026, 12, 1, 12, tzinfo=UTC)
LONG = "a-key-of-enough-characters"


def ring(*keys: dict[str, Any], master: str | None = None) -> KeyRing:
    return KeyRing(Settings(api_key=master, api_keys=keys))


def test_without_keys_there_is_no_ring() -> None:
    assert not ring()
    assert ring(master=LONG)


def test_a_key_is_found_among_several_by_its_text_or_its_hash() -> None:
    keys = ring(
        {"name": "old", "key": "first-" + LONG, "role": "VIEWER"},
        {"name": "new", "key": hashed("second-" + LONG), "role": "OPERATOR", "sessions": ["a"]},
        master=LONG,
    )

    assert keys.find("first-" + LONG, NOW) == Grant("old", Role.VIEWER)
    assert keys.find("second-" + LONG, NOW) == Grant("new", Role.OPERATOR, frozenset({"a"}))
    assert keys.find(LONG, NOW) == Grant("default", Role.ADMIN)


@pytest.mark.parametrize("key", ["", "x", LONG[:-1], LONG + " ", LONG.upper(), "\udcff", "é"])
def test_any_other_text_is_no_key(key: str) -> None:
    with pytest.raises(NotAuthenticatedError):
        ring(master=LONG).find(key, NOW)


def test_the_hash_itself_is_no_key() -> None:
    keys = ring({"name": "a", "key": hashed(LONG)})

    with pytest.raises(NotAuthenticatedError):
        keys.find(hashed(LONG), NOW)


def test_a_key_is_good_up_to_its_end() -> None:
    keys = ring({"name": "a", "key": LONG, "expires": NOW})

    assert keys.find(LONG, NOW - timedelta(microseconds=1)).name == "a"
    with pytest.raises(NotAuthenticatedError, match="expired"):
        keys.find(LONG, NOW)


@pytest.mark.parametrize("place", range(5))
def test_every_key_is_compared_wherever_the_right_one_stands(
    place: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared, whole = [], hmac.compare_digest

    def compare(one: bytes, other: bytes) -> bool:
        compared.append(one)
        return whole(one, other)

    monkeypatch.setattr(api_keys.hmac, "compare_digest", compare)
    keys = ring(*({"name": f"k{index}", "key": f"{LONG}-{index}"} for index in range(5)))

    keys.find(f"{LONG}-{place}", NOW)

    assert len(compared) == 5
    assert {len(item) for item in compared} == {32}


def test_a_new_key_is_long_random_and_usable() -> None:
    made = {new_key() for _ in range(100)}

    assert len(made) == 100
    for key in made:
        assert key.startswith("yk_")
        assert len(key) >= 43
        assert not check(Settings(api_key=key))


# --- settings ------------------------------------------------------------------------------------


def findings(**settings: Any) -> list[tuple[bool, str]]:
    return [(item.refused, item.text) for item in check(Settings(**settings))]


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ([{"name": "a", "key": LONG}, {"name": "a", "key": LONG + "x"}], "more than once"),
        ([{"name": "default", "key": LONG + "x"}], "is that of yukta.api-key"),
        ([{"name": "a", "key": LONG}, {"name": "b", "key": hashed(LONG)}], "are the same"),
        ([{"name": "a b", "key": LONG}], "is not an id"),
        ([{"name": "a\n", "key": LONG}], "is not an id"),
        ([{"name": "a", "key": "sha256:12"}], "64 hex digits"),
        ([{"name": "a", "key": ""}], "visible ASCII"),
        ([{"name": "a", "key": "with a blank in the middle"}], "visible ASCII"),
        ([{"name": "a", "key": LONG, "sessions": ["../x"]}], "is not an id"),
    ],
)
def test_keys_that_cannot_work_stop_the_start(keys: list[dict[str, Any]], said: str) -> None:
    master = {"api_key": LONG + "-master"} if keys[0]["name"] == "default" else {}

    refused = [text for refused, text in findings(api_keys=keys, **master) if refused]

    assert len(refused) == 1
    assert said in refused[0]
    assert LONG not in refused[0]


def test_a_key_that_can_be_guessed_is_warned_of() -> None:
    [(refused, text)] = findings(api_keys=[{"name": "a", "key": "short"}])

    assert not refused
    assert "can be guessed" in text
    assert "short" not in text.replace("shorter", "")


def test_a_key_may_be_given_by_variables_with_its_end() -> None:
    settings = load_settings(
        environ={
            "YUKTA_API_KEYS_0_NAME": "ci",
            "YUKTA_API_KEYS_0_KEY": LONG,
            "YUKTA_API_KEYS_0_ROLE": "operator",
            "YUKTA_API_KEYS_0_SESSIONS": "a,b",
            "YUKTA_API_KEYS_0_EXPIRES": "2027-01-01T00:00:00Z",
        }
    )

    [entry] = settings.api_keys
    assert (entry.role, entry.sessions) == (Role.OPERATOR, ("a", "b"))
    assert entry.expires == datetime(2027, 1, 1, tzinfo=UTC)
    assert LONG not in repr(settings)


@pytest.mark.parametrize("text", ["2027-01-01", "2027-01-01T00:00:00", "tomorrow"])
def test_an_end_without_a_zone_is_refused(text: str) -> None:
    environ = {"YUKTA_API_KEYS_0_NAME": "a", "YUKTA_API_KEYS_0_KEY": LONG}

    with pytest.raises(ConfigError, match="expected a time with its zone") as caught:
        load_settings(environ={**environ, "YUKTA_API_KEYS_0_EXPIRES": text})

    assert LONG not in str(caught.value)


# --- sessions of browsers, and attempts ----------------------------------------------------------


def test_the_session_of_a_browser_ends_by_itself() -> None:
    sessions = BrowserSessions(60)
    token = sessions.open(Grant("a", Role.VIEWER), 100.0)

    assert sessions.find(token, 159.9) == Grant("a", Role.VIEWER)
    assert sessions.find(token, 160.0) is None


def test_so_many_browsers_at_once_have_a_session_and_the_oldest_ends_first() -> None:
    sessions = BrowserSessions(60)
    tokens = [sessions.open(Grant("a", Role.VIEWER), 0.0) for _ in range(CAPACITY + 5)]

    assert len(sessions) == CAPACITY
    assert [sessions.find(token, 1.0) is None for token in tokens[:7]] == [True] * 5 + [False] * 2


def test_old_sessions_make_room_for_new_ones() -> None:
    sessions = BrowserSessions(60)
    for _ in range(10):
        sessions.open(Grant("a", Role.VIEWER), 0.0)

    sessions.open(Grant("a", Role.VIEWER), 100.0)

    assert len(sessions) == 1


def test_an_address_may_try_again_when_its_attempts_are_old() -> None:
    attempts = Attempts()
    for second in range(ATTEMPTS):
        attempts.check("a", float(second))
        attempts.failed("a", float(second))

    with pytest.raises(Exception, match="too many wrong keys") as caught:
        attempts.check("a", ATTEMPTS + 1.0)

    assert caught.value.retry_after == WINDOW - ATTEMPTS - 1.0  # type: ignore[attr-defined]
    attempts.check("b", ATTEMPTS + 1.0)
    attempts.check("a", WINDOW)


def test_what_is_known_of_addresses_is_bounded() -> None:
    attempts = Attempts()
    for number in range(ADDRESSES + 50):
        attempts.failed(str(number), 0.0)

    assert len(attempts._failed) == ADDRESSES


@given(st.text(min_size=1, max_size=40))
def test_no_text_but_the_key_opens_anything(text: str) -> None:
    if text != LONG:
        with pytest.raises(NotAuthenticatedError):
            ring(master=LONG).find(text, NOW)
