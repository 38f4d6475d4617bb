"""Which names look secret, and which variables may be read."""

import pytest

from yukta_rx.errors import BadInputError
from yukta_rx.security.environment import HARMLESS_ENV, HARMLESS_SYS, looks_secret, may_read, read
from yukta_rx.security.secrets import EnvironmentSecrets

pytestmark = pytest.mark.feature("SEC-02")


@pytest.mark.parametrize(
    "name",
    [
        *("DB_PASSWORD", "PASSWORD", "MYSQLPASSWORD", "db.password", "dbPassword", "PASSWD"),
        *("API_KEY", "apiKey", "APIKEY", "AWS_SECRET_ACCESS_KEY", "SECRET", "client-secret"),
        *("GITHUB_TOKEN", "githubToken", "TOKENS", "AUTH", "BASIC_AUTH", "DB_PWD", "DB_PASS"),
        *("SSH_PRIVATE", "CREDENTIALS", "MY_CREDS", "JWT", "SESSION_COOKIE", "TLS_CERT", "KEY"),
        *("YUKTA_API_KEY", "YUKTA_SECRET_X", "yukta.var.api-key", "SENTRY_DSN", "KEY2", "P_KEY_1"),
    ],
)
def test_a_name_that_looks_secret_is_recognised(name):
    assert looks_secret(name)
    assert not may_read("env", name, None)


@pytest.mark.parametrize(
    "name",
    ["HOME", "MONKEY", "KEYBOARD_LAYOUT", "COMPASS", "PWD", "AUTHOR", "SPINE", "REGION", "CERTAIN"],
)
def test_a_name_that_only_contains_such_letters_is_not(name):
    assert not looks_secret(name)


def test_no_harmless_name_looks_secret():
    assert not [name for name in HARMLESS_ENV | HARMLESS_SYS if looks_secret(name)]


@pytest.mark.parametrize("name", sorted(HARMLESS_SYS))
def test_every_harmless_fact_has_a_value(name):
    assert read("sys", name, {"USER": "ada", "HOME": "/home/ada"}, None)


def test_an_env_name_is_no_sys_name():
    assert may_read("env", "HOME", None)
    assert not may_read("sys", "HOME", None)
    assert not may_read("env", "os.name", None)


@pytest.mark.parametrize("name", ["", "a b", "../x", "a\n", "1a", "x" * 200])
def test_a_malformed_name_of_a_secret_is_bad_input(name):
    with pytest.raises(BadInputError, match="not the name of a secret"):
        EnvironmentSecrets({}).get(name)


def test_an_empty_secret_is_a_value():
    assert EnvironmentSecrets({"YUKTA_SECRET_X": ""}).get("x") == ""
