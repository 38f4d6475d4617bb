"""Opening the stores of a server: which backend, whose folder, in which order."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from yukta_rx.config.load import load_settings
from yukta_rx.durability.matrix import durability_matrix
from yukta_rx.durability.open import Stores, open_stores
from yukta_rx.errors import StoreUnavailableError
from yukta_rx.metrics import Meters

if TYPE_CHECKING:
    from pathlib import Path

    from yukta_rx.config.settings import Settings

pytestmark = pytest.mark.feature("DUR-05")

SWITCHES = ("session", "execution-log", "restart", "kv", "session-memory")
OF_SWITCH = {
    "session": {"definitions", "sessions"},
    "execution-log": {"execution_log", "queued_starts", "events"},
    "restart": {"checkpoints", "archive", "input_requests", "results", "effects"},
    "kv": {"key_values"},
    "session-memory": {"histories"},
}


def settings(**values: Any) -> Settings:
    named = {f"yukta.{name.replace('__', '.').replace('_', '-')}": v for name, v in values.items()}
    return load_settings("/dev/null", environ={}, overrides=named)


def opened(found: Settings, instance: str = "") -> Any:
    return open_stores(found, asyncio.to_thread, Meters(), instance)


NO_STORES = {"folders", "leading", "database", "linger"}


def durable(stores: Stores) -> set[str]:
    names = {field.name for field in dataclasses.fields(stores)} - NO_STORES
    return {name for name in names if getattr(stores, name).durable}


# --- which backend -------------------------------------------------------------------------------


async def test_in_memory_nothing_is_durable_and_no_folder_is_taken() -> None:
    async with opened(settings()) as stores:
        assert durable(stores) == set()
        assert stores.folders == {}


async def test_the_profile_file_makes_every_store_durable(tmp_path: Path) -> None:
    async with opened(settings(profile="file", data__dir=str(tmp_path))) as stores:
        assert durable(stores) == set().union(*OF_SWITCH.values())
        assert set(stores.folders) == set(SWITCHES)


@pytest.mark.parametrize("switch", SWITCHES)
async def test_a_switch_governs_its_stores_and_no_others(tmp_path: Path, switch: str) -> None:
    values = {f"{switch.replace('-', '_')}__store_type": "file", "data__dir": str(tmp_path)}

    async with opened(settings(**values)) as stores:
        assert durable(stores) == OF_SWITCH[switch]
        assert stores.folders[switch].path == tmp_path / switch


def test_every_store_belongs_to_a_switch() -> None:
    names = {field.name for field in dataclasses.fields(Stores)} - NO_STORES

    assert names == set().union(*OF_SWITCH.values())


@pytest.mark.feature("DUR-04")
def test_a_database_is_refused_where_its_packages_are_not_installed() -> None:
    program = (
        "import sys\n"
        "sys.modules['asyncpg'] = None\n"
        "from yukta_rx.config.load import load_settings\n"
        "from yukta_rx.durability.open import check_settings\n"
        "from yukta_rx.errors import ConfigError\n"
        "found = {'YUKTA_PROFILE': 'postgres', 'YUKTA_POSTGRES_URL': 'postgresql://y@db/y'}\n"
        "try:\n"
        "    check_settings(load_settings('/dev/null', found))\n"
        "except ConfigError as error:\n"
        "    print(*error.problems, sep='\\n')\n"
    )

    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )

    told = done.stdout.splitlines()
    assert len(told) == len(SWITCHES)
    assert told[0] == (
        "yukta.session.store-type = postgres needs asyncpg: pip install 'yukta_rx[postgres]'"
    )


def test_a_server_in_memory_loads_nothing_of_the_other_backends() -> None:
    program = (
        "import asyncio, sys\n"
        "from yukta_rx.app import Engine\n"
        "async def main():\n"
        "    async with Engine():\n"
        "        pass\n"
        "asyncio.run(main())\n"
        "print([name for name in sys.modules if 'durability.file' in name\n"
        "       or 'durability.postgres' in name])\n"
    )
    environ = {name: v for name, v in os.environ.items() if not name.startswith("YUKTA_")}

    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environ, timeout=60
    )

    assert (done.stdout, done.stderr) == ("[]\n", "")


# --- whose folder --------------------------------------------------------------------------------


async def test_a_folder_has_one_server_who_is_named_to_the_next(tmp_path: Path) -> None:
    found = settings(profile="file", data__dir=str(tmp_path))

    async with opened(found, "first"):
        with pytest.raises(StoreUnavailableError) as refused:
            async with opened(found, "second"):
                pass

    told = refused.value.detail
    assert told.startswith(f"yukta.session.dir: {tmp_path / 'session'}: another server has this")
    assert f"pid {os.getpid()} " in told
    assert "instance first" in told
    async with opened(found, "third"):
        pass


async def test_who_cannot_have_all_folders_keeps_none(tmp_path: Path) -> None:
    whole = settings(profile="file", data__dir=str(tmp_path))

    async with opened(settings(kv__store_type="file", kv__dir=str(tmp_path / "kv"))):
        with pytest.raises(StoreUnavailableError, match=r"yukta\.kv\.dir: "):
            async with opened(whole):
                pass
        async with opened(settings(session__store_type="file", session__dir=f"{tmp_path}/session")):
            pass


async def test_switches_may_share_a_folder_which_is_taken_once(tmp_path: Path) -> None:
    shared = {f"{name.replace('-', '_')}__dir": str(tmp_path / "all") for name in SWITCHES}
    found = settings(profile="file", **shared)

    async with opened(found) as stores:
        assert len({id(folder) for folder in stores.folders.values()}) == 1
    async with opened(found) as stores:
        assert set(stores.folders) == set(SWITCHES)


@pytest.mark.parametrize("name", ["a-file", "a-file/below"])
async def test_a_folder_that_cannot_be_is_named_with_its_setting(tmp_path: Path, name: str) -> None:
    (tmp_path / "a-file").touch()
    found = settings(restart__dir=str(tmp_path / name))

    with pytest.raises(StoreUnavailableError) as refused:
        async with opened(found):
            pass

    assert refused.value.detail.startswith(f"yukta.restart.dir: {tmp_path / name}: ")


async def test_a_folder_that_was_taken_away_is_noticed(tmp_path: Path) -> None:
    found = settings(kv__store_type="file", kv__dir=str(tmp_path / "kv"))

    async with opened(found) as stores:
        folder = stores.folders["kv"]
        assert await folder.check() >= 0
        (tmp_path / "kv").rename(tmp_path / "elsewhere")
        with pytest.raises(StoreUnavailableError, match="No such file"):
            await folder.check()
        (tmp_path / "kv").mkdir()
        (tmp_path / "kv" / ".lock").touch()
        with pytest.raises(StoreUnavailableError, match="another folder took its place"):
            await folder.check()


# --- what the matrix says of it ------------------------------------------------------------------

HELD_BY = {
    "definitions": ("definitions",),
    "session-config": ("sessions",),
    "history": ("execution_log",),
    "runs": ("execution_log",),
    "idempotency-keys": ("execution_log",),
    "node-outputs": ("checkpoints",),
    "resume": ("execution_log", "checkpoints", "archive", "definitions", "sessions"),
    "effects": ("effects",),
    "queued-starts": ("queued_starts", "definitions", "sessions"),
    "approvals": ("input_requests",),
    "limits": ("execution_log",),
    "results": ("results",),
    "events": ("events",),
    "session-memory": ("histories",),
    "key-values": ("key_values",),
    "live-view": (),
}


@pytest.mark.feature("HA-01")
@pytest.mark.parametrize("switch", [*SWITCHES, "all"])
async def test_the_matrix_says_of_every_kind_what_its_stores_do(
    tmp_path: Path, switch: str
) -> None:
    values: dict[str, Any] = {"data__dir": str(tmp_path)}
    if switch == "all":
        values["profile"] = "file"
    else:
        values[f"{switch.replace('-', '_')}__store_type"] = "file"
    found = settings(**values)

    async with opened(found) as stores:
        kept = durable(stores)
        said = {row.item: not row.lost for row in durability_matrix(found)}

    assert said == {item: bool(names) and kept >= set(names) for item, names in HELD_BY.items()}
