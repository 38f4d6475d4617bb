"""Random edits of one workflow against a list that does the same in the plainest way."""

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from yukta_rx.config.settings import Settings
from yukta_rx.definitions.prepare import Preparer
from yukta_rx.definitions.service import DefinitionService
from yukta_rx.durability.memory.definitions import MemoryWorkflowDefinitionStore
from yukta_rx.durability.memory.sessions import MemorySessionConfigStore
from yukta_rx.errors import NotFoundError

pytestmark = pytest.mark.feature("DEF-01")

KEEP = 3
FORMS = 3

EDITS = st.lists(
    st.one_of(
        st.tuples(st.just("save"), st.integers(0, FORMS)),
        st.tuples(st.just("apply"), st.integers(0, FORMS)),
        st.tuples(st.just("rollback"), st.integers(1, 12)),
        st.tuples(st.just("note"), st.integers(1, 12)),
        st.tuples(st.just("unnote"), st.integers(1, 12)),
        st.tuples(st.just("delete"), st.just(0)),
    ),
    max_size=30,
)


class Plain:
    """Versions as a list of (number, form, noted), the oldest first."""

    def __init__(self):
        self.versions = []
        self.last = 0

    def put(self, form):
        if not self.versions or self.versions[-1][1] != form:
            self.last += 1
            self.versions.append((self.last, form, False))
        self.prune()

    def prune(self):
        newest = self.versions[-KEEP:]
        self.versions = [item for item in self.versions if item[2] or item in newest]

    def find(self, number):
        return next((item for item in self.versions if item[0] == number), None)

    def mark(self, number, noted):
        self.versions = [
            (found, form, noted if found == number else old) for found, form, old in self.versions
        ]
        self.prune()


async def carry_out(service, plain, edit, number, form_of):
    known = bool(plain.versions) and plain.find(number) is not None
    if edit == "save":
        await service.save("s", "w", form_of(number))
        plain.put(number)
    elif edit == "apply":
        await service.apply_session({"sessionId": "s", "workflows": [form_of(number)]})
        plain.put(number)
    elif edit == "delete":
        if plain.versions:
            await service.delete("s", "w")
        plain.versions = []
    elif not known:
        with pytest.raises(NotFoundError):
            await (
                service.rollback("s", "w", number)
                if edit == "rollback"
                else service.note("s", "w", number, "x")
            )
    elif edit == "rollback":
        await service.rollback("s", "w", number)
        plain.put(plain.find(number)[1])
    else:
        await service.note("s", "w", number, "x" if edit == "note" else "")
        plain.mark(number, edit == "note")


@settings(deadline=None)
@given(EDITS)
def test_any_edits_leave_the_versions_that_the_plainest_list_has(registry, doc, edits):
    def form_of(number):
        return {**doc.line(*(doc.node(f"n{index}") for index in range(number))), "workflowId": "w"}

    async def run():
        store, all_settings = MemoryWorkflowDefinitionStore(KEEP), Settings()
        service = DefinitionService(
            store,
            MemorySessionConfigStore(store),
            registry,
            all_settings,
            Preparer(registry, all_settings),
        )
        await service.apply_session({"sessionId": "s"})
        plain = Plain()
        for edit, number in edits:
            await carry_out(service, plain, edit, number, form_of)
            found = [
                (item.version, len(item.definition.nodes) - 2, item.note is not None)
                for item in await store.versions("s", "w")
            ]
            assert found[::-1] == plain.versions
            listed = [item.version for item in await store.list("s")]
            assert listed == [item[0] for item in plain.versions[-1:]]

    asyncio.run(run())
