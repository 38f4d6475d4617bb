"""The guarantees of `SessionConfigStore`, one test each, for every backend."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from tests.contract.definitions import record
from yukta_rx.durability.stores.sessions import SessionChange, SessionRecord
from yukta_rx.model.session import SessionConfig

if TYPE_CHECKING:
    from yukta_rx.durability.stores.definitions import WorkflowDefinitionStore
    from yukta_rx.durability.stores.sessions import SessionConfigStore

NOON = datetime(2026, 3, 1, 12, 0, 0, 125_000, tzinfo=UTC)


class Stores(NamedTuple):
    """Both stores of one backend."""

    sessions: SessionConfigStore
    definitions: WorkflowDefinitionStore


def session(session_id: str, **settings: Any) -> SessionRecord:
    config = SessionConfig(session_id=session_id, **settings)
    return SessionRecord(config=config, created_at=NOON, updated_at=NOON)


def change(session_id: str, *workflows: str, **more: Any) -> SessionChange:
    """A session with these workflows."""
    return SessionChange(
        session_id=session_id,
        record=session(session_id),
        put=tuple(record(name, 1, session_id) for name in workflows),
        **more,
    )


class SessionContract:
    """Subclass it with a fixture `stores`, and say how the backend loses its answer."""

    def lose(self, stores: Any) -> None:
        """From here on the backend gives no answer."""
        pytest.skip("this backend cannot lose its answer")

    async def test_S1_reads_show_a_commit_once_it_has_returned(self, stores: Stores) -> None:
        for name in ("first", "second"):
            changed = session("s", name=name)
            await stores.sessions.commit([SessionChange(session_id="s", record=changed)])

            assert await stores.sessions.get("s") == changed
            assert list(await stores.sessions.list()) == [changed]
        await stores.sessions.commit(
            [SessionChange(session_id="s", put=(record("w", 1), record("v", 1)))]
        )
        assert len(await stores.definitions.list("s")) == 2
        assert await stores.sessions.get("s") == changed

    async def test_S2_sessions_are_listed_by_id(self, stores: Stores) -> None:
        await stores.sessions.commit([change(name) for name in ("c", "a", "B", "a.b")])

        names = [item.session_id for item in await stores.sessions.list()]
        assert names == sorted(["c", "a", "B", "a.b"])

    async def test_S3_no_answer_is_never_an_empty_one(self, stores: Stores) -> None:
        await stores.sessions.commit([change("s")])
        self.lose(stores)

        for ask in (
            lambda: stores.sessions.get("s"),
            lambda: stores.sessions.list(),
            lambda: stores.sessions.commit([change("t")]),
        ):
            with pytest.raises(Exception):  # noqa: B017, PT011  (each backend has its own)
                await ask()

    async def test_S4_a_commit_is_all_or_nothing(self, stores: Stores) -> None:
        await stores.sessions.commit([change("old", "w", "gone")])

        wrong: Any = SessionChange(session_id="t", record=session("t"), put=(None,))  # type: ignore[arg-type]
        with pytest.raises(Exception):  # noqa: B017, PT011  (each backend has its own)
            await stores.sessions.commit([change("old", "x", remove=("gone",)), wrong])

        assert [item.session_id for item in await stores.sessions.list()] == ["old"]
        kept = [item.workflow_id for item in await stores.definitions.list("old")]
        assert kept == ["gone", "w"]

    async def test_S5_a_session_comes_back_equal(self, stores: Stores) -> None:
        made = session(
            "s",
            name="Ünïcode \u2028 名前",
            description="",
            project_path="C:\\a/b",
            initiator="ada",
            initiated_time=datetime(2026, 1, 1, tzinfo=timezone(timedelta(hours=2))),
            tags={"größe": "大", "": "empty", "$yukta": "x"},
            execution_timeout_ms=1,
        )
        await stores.sessions.commit([SessionChange(session_id="s", record=made)])

        found = await stores.sessions.get("s")
        assert found == made
        assert found is not None
        assert found.config.model_fields_set == made.config.model_fields_set

    async def test_S6_a_session_that_is_gone_is_gone(self, stores: Stores) -> None:
        await stores.sessions.commit([change("s", "w"), change("other", "w")])
        await stores.sessions.commit(
            [
                SessionChange(session_id="s", remove=("w",), gone=True),
                SessionChange(session_id="never-there", gone=True),
            ]
        )

        assert await stores.sessions.get("s") is None
        assert [item.session_id for item in await stores.sessions.list()] == ["other"]
        assert list(await stores.definitions.list("s")) == []
        assert len(await stores.definitions.list("other")) == 1

    async def test_S7_workflows_of_a_commit_are_numbered_as_in_a_write(
        self, stores: Stores
    ) -> None:
        await stores.definitions.write("s", [record("w", 0)])
        put = (record("w", 1), record("v", 1))
        first = await stores.sessions.commit([SessionChange(session_id="s", put=put)])
        again = await stores.sessions.commit([SessionChange(session_id="s", put=put)])

        assert [item.version for item in first] == [2, 1]
        assert list(again) == list(first)
        assert len(await stores.definitions.versions("s", "w")) == 2
