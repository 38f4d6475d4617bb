"""Masker: a secret that is in use stands in no text; and where it would have stood."""

from __future__ import annotations

import base64
import json
import logging
from typing import Any
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from yukta_rx.config.settings import Settings
from yukta_rx.security.api_keys import hashed
from yukta_rx.security.masking import MASK, Masker, MaskingFilter
from yukta_rx.security.secrets import EnvironmentSecrets
from yukta_rx.security.settings_view import settings_in_force, settings_schema

pytestmark = pytest.mark.feature("SEC-02")

SECRET = 's3cr3t "quoted" & käse/\\n+'


def knowing(*secrets: str) -> Masker:
    masker = Masker()
    for secret in secrets:
        masker.add(secret)
    return masker


def test_a_masker_that_knows_nothing_gives_back_the_same_objects() -> None:
    masker, text, value = Masker(), "some text", {"a": ["b", 1]}

    assert masker.mask(text) is text
    assert masker.mask_json(value) is value
    assert not masker.active


def test_what_holds_no_secret_is_given_back_as_the_same_object() -> None:
    masker, value = knowing(SECRET), {"a": ["b", {"c": 1}], "d": None}

    assert masker.mask_json(value) is value


@pytest.mark.parametrize(
    "form",
    [
        SECRET,
        json.dumps(SECRET)[1:-1],
        json.dumps(SECRET, ensure_ascii=False)[1:-1],
        repr(SECRET)[1:-1],
        ascii(SECRET)[1:-1],
        quote(SECRET, safe=""),
        quote(SECRET),
        quote_plus(SECRET),
        base64.b64encode(SECRET.encode()).decode(),
        base64.urlsafe_b64encode(SECRET.encode()).decode(),
    ],
)
def test_a_secret_is_found_in_each_form_that_it_may_have(form: str) -> None:
    masked = knowing(SECRET).mask(f"before {form} after")

    assert masked.startswith(f"before {MASK}")
    assert masked.rstrip("=").endswith("after")
    assert form not in masked


def test_each_line_of_a_private_key_is_masked_by_itself() -> None:
    key = "-----BEGIN-----\nAAAABBBBCCCC\nDDDDEEEEFFFF\nend\n-----END-----\n"
    masker = knowing(key)

    assert masker.mask("line AAAABBBBCCCC") == f"line {MASK}"
    assert masker.mask(key) == MASK
    assert masker.mask("the end") == "the end"


def test_secrets_that_overlap_leave_nothing_of_each_other() -> None:
    masker = knowing("abcdef", "defghi", "abcdefgh")

    assert masker.mask("xabcdefghix") == f"x{MASK}x"


def test_a_very_short_secret_is_left_alone() -> None:
    assert knowing("abc", "").mask("abcabc") == "abcabc"


def test_values_are_masked_at_any_depth_and_types_are_kept() -> None:
    masked = knowing("hunter2").mask_json(
        {"a": ["x hunter2", 1, None, True], "b": {"c": ("hunter2",)}, "hunter2": 1.5}
    )

    assert masked == {"a": [f"x {MASK}", 1, None, True], "b": {"c": [MASK]}, "hunter2": 1.5}


@given(
    st.lists(st.text(min_size=4, max_size=12), min_size=1, max_size=5),
    st.data(),
)
def test_no_known_secret_is_left_in_any_text(secrets: list[str], data: Any) -> None:
    masker = knowing(*secrets)
    pieces = st.sampled_from([*secrets, "*", "a", " ", *(secret[:3] for secret in secrets)])
    text = "".join(data.draw(st.lists(pieces, max_size=12)))

    masked = masker.mask(text)

    assert not any(secret in masked for secret in secrets)
    assert masker.mask(masked) == masked


def test_secrets_that_are_handed_out_are_known_from_then_on() -> None:
    secrets = EnvironmentSecrets({"YUKTA_SECRET_MAIL": "hunter2hunter2"})

    assert secrets.masker.mask("hunter2hunter2") == "hunter2hunter2"
    assert secrets.get("mail") == "hunter2hunter2"
    assert secrets.masker.mask("x hunter2hunter2") == f"x {MASK}"


def test_all_secrets_of_an_environment_are_known_when_that_is_asked_for() -> None:
    environ = {"YUKTA_SECRET_A": "hunter2hunter2", "YUKTA_SECRET_B": "", "HOME": "/home/someone"}
    secrets = EnvironmentSecrets(environ)

    secrets.mask_all()

    assert secrets.masker.mask("hunter2hunter2 /home/someone") == f"{MASK} /home/someone"


def test_the_secrets_of_the_settings_are_known_from_the_start() -> None:
    settings = Settings(
        api_key="the-master-key",
        api_keys=[
            {"name": "a", "key": "the-plain-key"},
            {"name": "b", "key": hashed("the-hashed-key")},
        ],
        postgres={"url": "postgresql://me:the-password@db/x"},
    )

    masked = Masker.of(settings).mask("the-master-key the-plain-key the-password db the-hashed-key")

    assert masked == f"{MASK} {MASK} {MASK} db the-hashed-key"


# --- records of the log --------------------------------------------------------------------------


class Kept(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(self.format(record))


def logged(masker: Masker) -> tuple[logging.Logger, Kept]:
    logger, handler = logging.Logger("yukta.test"), Kept()
    handler.addFilter(MaskingFilter(masker))
    logger.addHandler(handler)
    return logger, handler


def test_a_record_is_masked_in_message_and_traceback() -> None:
    logger, handler = logged(knowing("hunter2"))

    try:
        raise ValueError("not hunter2")
    except ValueError:
        logger.exception("sent %s to %s", "hunter2", "db")

    [text] = handler.texts
    assert text.startswith(f"sent {MASK} to db\nTraceback")
    assert f"ValueError: not {MASK}" in text
    assert "hunter2" not in text


def test_a_record_without_a_secret_stays_as_it_is() -> None:
    logger, handler = logged(knowing("hunter2"))
    records: list[logging.LogRecord] = []
    handler.emit = records.append  # type: ignore[method-assign]

    logger.warning("%s is %d", "one", 1)

    assert (records[0].msg, records[0].args) == ("%s is %d", ("one", 1))


def test_a_record_that_cannot_be_written_is_left_to_its_handler() -> None:
    logger, handler = logged(knowing("hunter2"))
    records: list[logging.LogRecord] = []
    handler.emit = records.append  # type: ignore[method-assign]

    logger.warning("%d", "no number")

    assert len(records) == 1


# --- settings ------------------------------------------------------------------------------------


def test_settings_are_shown_as_they_are_written_and_never_a_secret() -> None:
    settings = Settings(
        api_key="the-master-key",
        api_keys=[{"name": "a", "key": "the-plain-key", "role": "VIEWER", "sessions": ["s"]}],
        postgres={"url": "postgresql://me:the-password@db/x"},
        var={"region": "eu", "db_password": "hunter2"},
        profile="memory",
    )
    shown = {item.name: item for item in settings_in_force(settings)}

    assert shown["yukta.api-key"].value == MASK
    assert shown["yukta.api-keys"].value == [
        {"name": "a", "key": MASK, "role": "VIEWER", "sessions": ["s"], "expires": None}
    ]
    assert shown["yukta.postgres.url"].value == MASK
    assert shown["yukta.var"].value == {"region": "eu", "db_password": MASK}
    assert shown["yukta.http.session-lifetime"].value == "12h"
    assert shown["yukta.limits.max-body"].value == "1MiB"
    assert shown["yukta.http.port"].value == 8080
    assert shown["yukta.profile"].value == "memory"
    text = json.dumps([item.as_dict() for item in shown.values()])
    assert not any(
        word in text for word in ("the-master-key", "the-plain-key", "the-password", "hunter2")
    )


def test_a_secret_that_nobody_set_is_shown_as_unset() -> None:
    shown = {item.name: item for item in settings_in_force(Settings())}

    assert shown["yukta.api-key"].value is None
    assert shown["yukta.api-key"].secret


def test_the_schema_of_the_file_takes_the_names_that_there_are() -> None:
    from jsonschema import Draft202012Validator

    schema = settings_schema()
    Draft202012Validator.check_schema(schema)
    validator = Draft202012Validator(schema)
    key = {"name": "a", "key": "k", "role": "VIEWER", "expires": "2027-01-01T00:00:00Z"}

    good = {"yukta": {"http": {"port": 1}, "api-keys": [key], "var": {"x": "y"}}}
    wrong = [
        {"yukta": {"http": {"prot": 1}}},
        {"yukta": {"http": {"port": 99_999}}},
        {"yukta": {"api-keys": [{"key": "k"}]}},
        {"yukta": {"profile": "paper"}},
    ]

    assert validator.is_valid(good)
    assert not any(validator.is_valid(document) for document in wrong)


def test_a_secret_setting_shows_itself_nowhere() -> None:
    assert "hunter2" not in repr(Settings(api_key=SecretStr("hunter2")))
