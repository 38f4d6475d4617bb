"""Sessions and workflows: saved whole or not at all, and never over someone else's change."""

import asyncio

import pytest

from yukta_rx.definitions.prepare import Preparer
from yukta_rx.definitions.service import DefinitionService
from yukta_rx.durability.file._folder import Folder
from yukta_rx.durability.file.definitions import FileWorkflowDefinitionStore
from yukta_rx.durability.file.sessions import FileSessionConfigStore
from yukta_rx.durability.memory.definitions import MemoryWorkflowDefinitionStore
from yukta_rx.durability.memory.sessions import MemorySessionConfigStore
from yukta_rx.errors import (
    ConflictError,
    DefinitionError,
    NotFoundError,
    StaleDefinitionError,
    StoreUnavailableError,
    ValidationError,
)

pytestmark = pytest.mark.feature("DEF-01", "DUR-05")


class Live:
    """Says which workflows have live runs."""

    def __init__(self):
        self.pairs = set()

    def __call__(self, session_id, workflow_id):
        return any(
            session == session_id and workflow_id in (None, workflow)
            for session, workflow in self.pairs
        )


@pytest.fixture
def live():
    return Live()


@pytest.fixture(params=["memory", "file"])
async def stores(request, tmp_path):
    """Definitions and sessions, of each backend."""
    if request.param == "memory":
        workflows = MemoryWorkflowDefinitionStore()
        yield workflows, MemorySessionConfigStore(workflows)
        return
    async with Folder(tmp_path) as folder:
        workflows = FileWorkflowDefinitionStore(folder)
        await workflows.open()
        yield workflows, FileSessionConfigStore(workflows)


@pytest.fixture
def service(registry, settings, live, stores):
    return DefinitionService(*stores, registry, settings, Preparer(registry, settings), in_use=live)


@pytest.fixture
def named(doc):
    """A line of two nodes with a workflow id of its own."""

    def make(workflow_id, *middle):
        return {**doc.line(*middle), "workflowId": workflow_id}

    return make


async def test_a_session_is_applied_with_its_workflows(service, named):
    applied = await service.apply_session(
        {"sessionId": "s", "tags": {"team": "a"}, "workflows": [named("b"), named("a")]}
    )

    assert (applied.existed, applied.created) == (False, ["b", "a"])
    view = await service.get_session("s")
    assert view.as_dict()["workflowIds"] == ["a", "b"]
    assert view.as_dict(include_workflows=True)["workflows"][0] == named("a")
    assert view.as_dict()["executionTimeoutMs"] == 3_600_000


async def test_applying_again_says_what_changed_and_removes_the_rest(service, named, doc):
    await service.apply_session(
        {"sessionId": "s", "workflows": [named("a"), named("b"), named("c")]}
    )

    applied = await service.apply_session(
        {
            "sessionId": "s",
            "workflows": [named("a"), named("b", doc.node("mid")), named("d")],
        }
    )

    assert applied.as_dict() == {
        "sessionId": "s",
        "created": ["d"],
        "changed": ["b"],
        "unchanged": ["a"],
        "removed": ["c"],
    }
    assert (await service.get("s", "b")).version == 2
    assert (await service.get("s", "a")).version == 1


async def test_a_dry_run_changes_nothing(service, named):
    applied = await service.apply_session(
        {"sessionId": "s", "workflows": [named("a")]}, dry_run=True
    )

    assert applied.created == ["a"]
    with pytest.raises(NotFoundError):
        await service.get_session("s")


async def test_one_bad_workflow_refuses_the_whole_session_and_every_fault_is_named(service, named):
    bad = {**named("bad"), "edges": []}

    with pytest.raises(ValidationError) as caught:
        await service.apply_session(
            {"sessionId": "s", "nonsense": 1, "workflows": [named("a"), bad, named("a")]}
        )

    pointers = [fault.pointer for fault in caught.value.errors]
    assert "/nonsense" in pointers
    assert any(pointer.startswith("/workflows/1/") for pointer in pointers)
    assert "/workflows/2/workflowId" in pointers
    with pytest.raises(NotFoundError):
        await service.get_session("s")


async def test_saving_the_same_again_adds_no_version(service, named):
    await service.apply_session({"sessionId": "s"})
    first = await service.save("s", "a", named("a"))
    again = await service.save("s", "a", named("a"))

    assert (first.created, first.unchanged) == (True, False)
    assert (again.created, again.unchanged) == (False, True)
    assert first.record.version == again.record.version == 1


async def test_a_change_that_is_based_on_an_old_form_is_refused(service, named, doc):
    await service.apply_session({"sessionId": "s"})
    first = await service.save("s", "a", named("a"))
    await service.save("s", "a", named("a", doc.node("mid")))

    with pytest.raises(StaleDefinitionError) as caught:
        await service.save(
            "s", "a", named("a", doc.node("x")), if_match=first.record.definition_version
        )

    assert caught.value.members["expected"] == first.record.definition_version
    assert caught.value.members["current"] != first.record.definition_version


async def test_create_only_refuses_what_is_there(service, named):
    await service.apply_session({"sessionId": "s"})
    await service.save("s", "a", named("a"), if_none_match=True)

    with pytest.raises(StaleDefinitionError, match="exists already"):
        await service.save("s", "a", named("a"), if_none_match=True)


async def test_of_two_changes_at_once_based_on_the_same_form_one_is_refused(service, named, doc):
    await service.apply_session({"sessionId": "s"})
    base = (await service.save("s", "a", named("a"))).record.definition_version

    outcomes = await asyncio.gather(
        *(service.save("s", "a", named("a", doc.node(f"n{i}")), if_match=base) for i in range(5)),
        return_exceptions=True,
    )

    assert sum(isinstance(item, StaleDefinitionError) for item in outcomes) == 4
    assert (await service.get("s", "a")).version == 2


async def test_a_workflow_must_have_the_id_of_its_address(service, named):
    await service.apply_session({"sessionId": "s"})

    with pytest.raises(DefinitionError) as caught:
        await service.save("s", "a", named("b"))

    assert caught.value.errors[0].pointer == "/workflowId"
    saved = await service.save("s", "c", {k: v for k, v in named("c").items() if k != "workflowId"})
    assert saved.record.workflow_id == "c"


async def test_a_workflow_without_a_session_is_refused(service, named):
    with pytest.raises(NotFoundError) as caught:
        await service.save("nowhere", "a", named("a"))

    assert caught.value.code == "session_not_found"


async def test_what_has_live_runs_is_not_removed(service, named, live):
    await service.apply_session({"sessionId": "s", "workflows": [named("a")]})
    live.pairs.add(("s", "a"))

    for removal in (
        service.delete("s", "a"),
        service.delete_session("s"),
        service.apply_session({"sessionId": "s", "workflows": []}),
    ):
        with pytest.raises(ConflictError) as caught:
            await removal
        assert caught.value.code == "in_use"

    assert (await service.get("s", "a")).version == 1


async def test_removing_a_session_removes_its_workflows(service, named):
    await service.apply_session({"sessionId": "s", "workflows": [named("a")]})

    await service.delete_session("s")
    await service.apply_session({"sessionId": "s"})

    assert (await service.get_session("s")).workflows == []


async def test_patching_merges_settings_and_leaves_the_workflows(service, named):
    await service.apply_session({"sessionId": "s", "description": "old", "workflows": [named("a")]})

    view = await service.patch_session("s", {"executionTimeoutMs": 5, "description": None})

    assert view.record.config.execution_timeout == 0.005
    assert view.record.config.description is None
    assert [item.workflow_id for item in view.workflows] == ["a"]
    with pytest.raises(ValidationError):
        await service.patch_session("s", {"executionTimeoutMs": 0})
    with pytest.raises(ValidationError):
        await service.patch_session("s", {"workflows": []})


async def test_the_etag_changes_with_every_change(service, named, doc):
    await service.apply_session({"sessionId": "s"})
    tags = [(await service.get_session("s")).etag]
    await service.save("s", "a", named("a"))
    tags.append((await service.get_session("s")).etag)
    await service.patch_session("s", {"name": "x"})
    tags.append((await service.get_session("s")).etag)

    assert len(set(tags)) == 3
    with pytest.raises(StaleDefinitionError):
        await service.apply_session({"sessionId": "s"}, if_match=tags[0])


async def test_case_07_duplicate_node_ids_are_refused_at_save_and_at_session_apply(service, doc):
    twice = {**doc.line(doc.node("n"), doc.node("n")), "workflowId": "a"}
    await service.apply_session({"sessionId": "s"})

    with pytest.raises(DefinitionError):
        await service.save("s", "a", twice)
    with pytest.raises(ValidationError):
        await service.apply_session({"sessionId": "s", "workflows": [twice]})


# --- what is there and cannot be read ------------------------------------------------------------


@pytest.fixture
async def damaged(registry, settings, live, named, tmp_path):
    """A service on files of which a person broke a workflow and a session."""
    for _ in range(2):
        async with Folder(tmp_path) as folder:
            workflows = FileWorkflowDefinitionStore(folder)
            await workflows.open()
            service = DefinitionService(
                workflows,
                FileSessionConfigStore(workflows),
                registry,
                settings,
                Preparer(registry, settings),
                in_use=live,
            )
            if not (tmp_path / "sessions").exists():
                for name in ("s", "t"):
                    document = {"sessionId": name, "workflows": [named("a"), named("b")]}
                    await service.apply_session(document)
                (tmp_path / "workflows/s/a/current.json").write_text("{")
                (tmp_path / "sessions/t.json").write_text("{")
                continue
            yield service


async def test_what_cannot_be_read_is_refused_with_its_place_and_the_rest_goes_on(damaged, named):
    for ask in (
        damaged.get("s", "a"),
        damaged.save("s", "a", named("a"), if_match="0" * 64),
        damaged.save("s", "a", named("a"), if_none_match=True),
        damaged.delete("s", "a", if_match="0" * 64),
    ):
        with pytest.raises(StoreUnavailableError, match=r"s/a/current\.json: line 1, column 2"):
            await ask
    with pytest.raises(StoreUnavailableError, match=r"sessions/t\.json: line 1, column 2"):
        await damaged.get_session("t")
    assert [view.session_id for view in await damaged.sessions()] == ["s"]
    assert [item.workflow_id for item in await damaged.workflows("s")] == ["b"]


@pytest.mark.parametrize("if_match", [None, "*"])
async def test_a_damaged_workflow_is_mended_by_saving_it(damaged, named, doc, if_match):
    saved = await damaged.save("s", "a", named("a", doc.node("p")), if_match=if_match)

    assert (saved.created, saved.record.version) == (True, 2)
    assert len(await damaged.versions("s", "a")) == 2


async def test_a_damaged_workflow_is_removed_unless_runs_of_it_are_live(damaged, live):
    live.pairs.add(("s", "a"))
    with pytest.raises(ConflictError):
        await damaged.delete("s", "a")
    live.pairs.clear()
    await damaged.delete("s", "a")

    with pytest.raises(NotFoundError):
        await damaged.get("s", "a")


async def test_a_damaged_session_is_mended_by_applying_it(damaged, named):
    applied = await damaged.apply_session({"sessionId": "t", "workflows": [named("a")]})

    assert (applied.unchanged, applied.removed) == (["a"], ["b"])
    assert (await damaged.get_session("t")).as_dict()["workflowIds"] == ["a"]
