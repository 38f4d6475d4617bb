"""Versions of a workflow: kept, compared, annotated, taken back, pinned."""

import pytest
from msgspec.structs import replace

from yukta_rx.config.settings import Settings
from yukta_rx.definitions.parse import parse_definition
from yukta_rx.definitions.prepare import Preparer
from yukta_rx.definitions.service import DefinitionService, SessionRequest
from yukta_rx.durability.memory.definitions import MemoryWorkflowDefinitionStore
from yukta_rx.durability.memory.sessions import MemorySessionConfigStore
from yukta_rx.errors import (
    ConflictError,
    DefinitionError,
    NotFoundError,
    StaleDefinitionError,
    ValidationError,
)

pytestmark = pytest.mark.feature("DEF-01")


class Built:
    """A service with all that it was made of."""

    def __init__(self, registry, settings, keep=20):
        self.store = MemoryWorkflowDefinitionStore(keep)
        self.events = []
        self.busy = set()
        self.preparer = Preparer(registry, settings)
        self.service = DefinitionService(
            self.store,
            MemorySessionConfigStore(self.store),
            registry,
            settings,
            self.preparer,
            in_use=lambda session, workflow: (session, workflow) in self.busy,
            emit=self.events.append,
        )


@pytest.fixture
def built(registry, settings):
    return Built(registry, settings)


@pytest.fixture
def form(doc):
    """The n-th form of the workflow `w`."""

    def make(n, workflow_id="w"):
        middle = [doc.node(f"n{index}") for index in range(n)]
        return {**doc.line(*middle), "workflowId": workflow_id}

    return make


@pytest.fixture
async def service(built, form):
    """Forms 0, 1 and 2 of `w`, saved by ada."""
    await built.service.apply_session({"sessionId": "s"})
    for n in range(3):
        await built.service.save("s", "w", form(n), actor="ada", note="first" if n == 0 else None)
    return built.service


async def test_every_save_of_other_content_makes_a_version_and_the_newest_is_first(service):
    rows = [
        item.as_row(current=at == 0) for at, item in enumerate(await service.versions("s", "w"))
    ]

    assert [row["version"] for row in rows] == [3, 2, 1]
    assert [row["current"] for row in rows] == [True, False, False]
    assert {row["actor"] for row in rows} == {"ada"}
    assert [row.get("note") for row in rows] == [None, None, "first"]
    assert len({row["definitionVersion"] for row in rows}) == 3


async def test_w16_the_same_again_adds_no_version_but_1_is_not_1_0(built, doc):
    service = built.service
    await service.apply_session({"sessionId": "s"})

    def form(config):
        wait = {"nodeId": "wait", "type": "WAIT", "config": config}
        return {**doc.line(wait), "workflowId": "w"}

    saved = [
        await service.save("s", "w", form(config))
        for config in (
            {"seconds": 1, "engine": {"deadlineMs": 5}},
            {"engine": {"deadlineMs": 5}, "seconds": 1},
            {"seconds": 1.0, "engine": {"deadlineMs": 5}},
        )
    ]

    assert [item.unchanged for item in saved] == [False, True, False]
    assert [item.record.version for item in saved] == [1, 1, 2]


async def test_saving_the_same_with_a_note_notes_the_version_that_is_there(service, form):
    again = await service.save("s", "w", form(2), note="checked")

    assert (again.unchanged, again.record.version, again.record.note) == (True, 3, "checked")
    assert (await service.get("s", "w")).note == "checked"


async def test_w17_only_so_many_versions_stay_and_those_with_a_note(registry, settings, form):
    built = Built(registry, settings, keep=3)
    await built.service.apply_session({"sessionId": "s"})
    for n in range(6):
        await built.service.save("s", "w", form(n), note="keep" if n == 1 else None)

    assert [item.version for item in await built.service.versions("s", "w")] == [6, 5, 4, 2]
    with pytest.raises(NotFoundError) as caught:
        await built.service.version("s", "w", 3)
    assert caught.value.code == "version_not_found"


async def test_numbers_go_on_after_a_removal(service, form):
    await service.delete("s", "w")
    with pytest.raises(NotFoundError):
        await service.versions("s", "w")

    assert (await service.save("s", "w", form(0))).record.version == 4
    await service.delete_session("s")
    await service.apply_session({"sessionId": "s", "workflows": [form(1)]})
    assert (await service.get("s", "w")).version == 5


async def test_a_diff_is_against_the_current_form_unless_it_says_otherwise(service):
    to_now = await service.diff("s", "w", 1)
    to_second = await service.diff("s", "w", 1, 2)

    assert (to_now.from_version, to_now.to_version) == (1, 3)
    assert to_now.nodes_added == ("n0", "n1")
    assert to_second.nodes_added == ("n0",)
    assert (await service.diff("s", "w", 3)).empty
    with pytest.raises(NotFoundError):
        await service.diff("s", "w", 9)


async def test_a_note_is_written_and_an_empty_one_takes_it_away(service):
    await service.note("s", "w", 2, "good one")
    assert (await service.version("s", "w", 2)).note == "good one"
    await service.note("s", "w", 2, "")

    assert (await service.version("s", "w", 2)).note is None
    with pytest.raises(NotFoundError) as caught:
        await service.note("s", "w", 9, "x")
    assert caught.value.code == "version_not_found"


async def test_a_rollback_makes_the_old_content_a_new_version(service, built, form):
    before = await service.get("s", "w")
    prepared = await built.preparer.prepare(before.definition)

    back = await service.rollback("s", "w", 1, actor="bob")

    assert (back.record.version, back.unchanged) == (4, False)
    assert back.record.document == form(0)
    assert [item.version for item in await service.versions("s", "w")] == [4, 3, 2, 1]
    assert await built.preparer.prepare(before.definition) is not prepared
    again = await service.rollback("s", "w", 1)
    assert (again.unchanged, again.record.version) == (True, 4)


async def test_a_rollback_that_is_based_on_an_old_form_is_refused(service):
    old, current = await service.version("s", "w", 2), await service.get("s", "w")

    with pytest.raises(StaleDefinitionError) as caught:
        await service.rollback("s", "w", 1, if_match=old.definition_version)

    assert caught.value.members == {
        "expected": old.definition_version,
        "current": current.definition_version,
    }
    assert (await service.rollback("s", "w", 1, if_match=current.definition_version)).record


async def test_case_07_two_nodes_of_one_id_are_refused_by_save_apply_import_and_rollback(
    service, built, doc
):
    twice = {**doc.line(doc.node("n"), doc.node("n")), "workflowId": "w"}
    # As a store may hold it that an older version wrote.
    stored = replace(await service.get("s", "w"), definition=parse_definition(twice))
    await built.store.write("s", [stored])
    await service.save("s", "w", {**doc.line(), "workflowId": "w"})

    for attempt in (
        service.save("s", "w", twice),
        service.apply_session({"sessionId": "s", "workflows": [twice]}),
        service.apply_sessions([SessionRequest(document={"sessionId": "s", "workflows": [twice]})]),
        service.rollback("s", "w", 4),
    ):
        with pytest.raises(ValidationError) as caught:
            await attempt
        assert "duplicate_node" in {fault.code for fault in caught.value.errors}
    assert (await service.get("s", "w")).version == 5


async def test_a_rollback_is_validated_with_the_settings_of_today(service, built, registry, form):
    small = Settings(definitions={"max_nodes": 3})
    today = DefinitionService(
        built.store, built.service._sessions, registry, small, Preparer(registry, small)
    )
    await today.rollback("s", "w", 1)

    with pytest.raises(DefinitionError, match="max-nodes"):
        await today.rollback("s", "w", 3)


@pytest.mark.parametrize("version", [2, "2"])
async def test_a_start_can_pin_a_version(service, form, version):
    assert (await service.pinned("s", "w", version)).document == form(1)


@pytest.mark.parametrize(
    "version", [9, 0, -1, "9", "", "x", "2.0", 2.0, True, None, [2], "2" * 40, "²", 10**30]
)
async def test_a_version_that_is_not_there_cannot_be_pinned(service, version):
    with pytest.raises(NotFoundError) as caught:
        await service.pinned("s", "w", version)

    assert caught.value.code == "version_not_found"
    for session, workflow, code in (
        ("s", "x", "workflow_not_found"),
        ("x", "w", "session_not_found"),
    ):
        with pytest.raises(NotFoundError) as caught:
            await service.pinned(session, workflow, version)
        assert caught.value.code == code


async def test_the_feed_is_told_of_every_new_version(service, built, form):
    built.events.clear()
    await service.save("s", "w", form(2))
    await service.save("s", "w", form(3), actor="ada")
    await service.rollback("s", "w", 1, actor="bob")
    await service.apply_session({"sessionId": "t", "workflows": [form(0, "a")]}, actor="eve")
    await service.apply_session({"sessionId": "t", "workflows": [form(1, "a")]}, dry_run=True)

    told = [(event.type, event.session_id, event.workflow_id) for event in built.events]
    assert told == [
        ("definition.saved", "s", "w"),
        ("definition.rolled_back", "s", "w"),
        ("definition.saved", "t", "a"),
    ]
    assert [event.data["actor"] for event in built.events] == ["ada", "bob", "eve"]
    assert {event.execution_id for event in built.events} == {""}
    current = await service.get("s", "w")
    assert built.events[1].data == current.as_row(current=True)


# --- several sessions at once --------------------------------------------------------------------


@pytest.mark.feature("DUR-05")
async def test_several_sessions_are_applied_all_or_none(built, form):
    service = built.service
    good = {"sessionId": "a", "workflows": [form(0)]}
    bad = {"sessionId": "b", "workflows": [form(0), {**form(1, "v"), "edges": []}]}

    with pytest.raises(ValidationError) as caught:
        await service.apply_sessions(
            [
                SessionRequest(document=good, place="/sessions/0"),
                SessionRequest(document=bad, place="/sessions/1"),
                SessionRequest(document=good, place="/sessions/2"),
            ]
        )

    pointers = [fault.pointer for fault in caught.value.errors]
    assert any(pointer.startswith("/sessions/1/workflows/1/") for pointer in pointers)
    assert "/sessions/2/sessionId" in pointers
    assert await service.sessions() == []


@pytest.mark.feature("DUR-05")
async def test_a_stale_or_busy_session_keeps_all_others_from_changing(built, form):
    service = built.service
    await service.apply_session({"sessionId": "b", "workflows": [form(0)]})
    built.busy.add(("b", "w"))
    other = SessionRequest(document={"sessionId": "a", "workflows": [form(0)]})

    for request, error in (
        (SessionRequest(document={"sessionId": "b"}), ConflictError),
        (SessionRequest(document={"sessionId": "b"}, if_match="x"), StaleDefinitionError),
        (SessionRequest(document={"sessionId": "b"}, if_none_match=True), StaleDefinitionError),
    ):
        with pytest.raises(error):
            await service.apply_sessions([other, request])

    assert [view.session_id for view in await service.sessions()] == ["b"]


@pytest.mark.feature("DUR-05")
async def test_a_request_can_leave_other_workflows_and_the_settings_alone(built, form):
    service = built.service
    await service.apply_session(
        {"sessionId": "a", "executionTimeoutMs": 5, "workflows": [form(0, "old")]}
    )

    [applied] = await service.apply_sessions(
        [
            SessionRequest(
                document={"sessionId": "a", "workflows": [form(0, "new")]},
                prune=False,
                keep_settings=True,
            )
        ]
    )

    assert (applied.created, applied.removed) == (["new"], [])
    view = await service.get_session("a")
    assert [item.workflow_id for item in view.workflows] == ["new", "old"]
    assert view.record.config.execution_timeout_ms == 5


@pytest.mark.feature("DUR-05")
async def test_a_patch_merges_tags_as_rfc_7396_says(built):
    await built.service.apply_session({"sessionId": "a", "tags": {"x": "1", "y": "2"}})

    view = await built.service.patch_session("a", {"tags": {"x": None, "z": "3"}})

    assert view.record.config.tags == {"y": "2", "z": "3"}
    view = await built.service.patch_session("a", {"tags": None})
    assert view.record.config.tags == {}
    view = await built.service.patch_session("a", {"tags": {"q": "1", "none": None}})
    assert view.record.config.tags == {"q": "1"}
