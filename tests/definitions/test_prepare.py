"""A definition is made ready once per content and shared."""

import asyncio

import pytest

from yukta_rx.definitions.parse import parse_definition
from yukta_rx.definitions.prepare import Child, Parent, Preparer, prepare
from yukta_rx.definitions.validate import UNSUPPORTED_POLICY_KEYS
from yukta_rx.errors import DefinitionError
from yukta_rx.metrics import Meters
from yukta_rx.model.message import Message
from yukta_rx.security.variables import Scope

pytestmark = pytest.mark.feature("DEF-03")


class Gate:
    """Does work only when it is opened, and counts how often it was asked."""

    def __init__(self):
        self.open = asyncio.Event()
        self.asked = 0

    async def __call__(self, work):
        self.asked += 1
        await self.open.wait()
        return work()


@pytest.fixture
def definition(doc):
    return parse_definition(
        doc.line(doc.node("a", "TRANSFORM", config={"set": {"x": "${payload.y}"}}))
    )


@pytest.fixture
def other(doc):
    return parse_definition(doc.line(doc.node("b")))


class TestPreparedWorkflow:
    """What the engine wires."""

    def test_nodes_stand_behind_their_parents_whatever_the_document_says(
        self, doc, registry, settings
    ):
        document = doc.line(*(doc.node(name) for name in "abc"))
        document["nodes"].reverse()

        prepared = prepare(parse_definition(document), registry, settings=settings)

        assert prepared.order == tuple(prepared.nodes) == ("in", "a", "b", "c", "out")

    def test_each_node_knows_its_plugin_its_parents_and_its_children(self, doc, registry, settings):
        document = doc.line(doc.node("a", "WAIT"))
        document["edges"].append(doc.edge("a", "out", "late"))

        prepared = prepare(parse_definition(document), registry, settings=settings)

        node = prepared.nodes["a"]
        assert (node.node_id, node.spec.type) == ("a", "WAIT")
        assert node.parents == (Parent("in", None, required=True),)
        assert node.children == (Child("out", None), Child("out", "late"))
        assert prepared.nodes["out"].parents == (
            Parent("a", None, required=True),
            Parent("a", "late", required=True),
        )

    def test_it_carries_the_content_hash_and_the_warnings(self, doc, registry, settings):
        definition = parse_definition(doc.workflow([doc.node("in", "API_TRIGGER")], []))

        prepared = prepare(definition, registry, settings=settings)

        assert prepared.version == definition.version
        assert [warning.code for warning in prepared.warnings] == ["no_child"]

    def test_the_options_are_bound_and_resolved_per_message(self, definition, registry, settings):
        node = prepare(definition, registry, settings=settings).nodes["a"]

        resolved = node.config.resolve(Scope(Message.of({"y": 7})))

        assert node.config.constant is None
        assert resolved.model_dump()["set"] == {"x": "7"}

    @pytest.mark.parametrize(
        ("timeout", "seconds"),
        [(None, 60), (5, 5), (0.5, 0.5), (0, None), ("${payload.s:int}", 60)],
    )
    def test_the_idle_timeout_is_the_nodes_own_or_the_plugins(
        self, doc, registry, settings, timeout, seconds
    ):
        document = doc.line(doc.node("a", "WAIT", timeoutSeconds=timeout))

        node = prepare(parse_definition(document), registry, settings=settings).nodes["a"]

        assert node.idle_timeout == seconds

    def test_an_idle_timeout_that_is_an_expression_can_be_resolved_later(
        self, doc, registry, settings
    ):
        document = doc.line(doc.node("a", "WAIT", timeoutSeconds="${payload.s:int}"))

        node = prepare(parse_definition(document), registry, settings=settings).nodes["a"]

        assert node.timeout_template is not None
        assert node.timeout_template.resolve(Scope(Message.of({"s": "9"}))) == 9

    def test_a_broken_definition_is_refused(self, doc, registry, settings):
        definition = parse_definition(doc.workflow([doc.node("a")], []))

        with pytest.raises(DefinitionError, match="trigger"):
            prepare(definition, registry, settings=settings)


class TestSharing:
    """Preparations are shared, kept, dropped and never mixed up."""

    async def test_the_same_content_is_prepared_once(self, doc, definition, registry, settings):
        preparer = Preparer(registry, settings)
        document = definition.as_document()
        same = parse_definition({key: document[key] for key in reversed(document)})

        assert await preparer.prepare(definition) is await preparer.prepare(same)

    async def test_another_content_is_prepared_by_itself(
        self, definition, other, registry, settings
    ):
        preparer = Preparer(registry, settings)

        first, second = await preparer.prepare(definition), await preparer.prepare(other)

        assert first is not second
        assert first.version != second.version

    async def test_another_folder_is_prepared_by_itself(
        self, definition, registry, settings, tmp_path
    ):
        preparer = Preparer(registry, settings)

        assert await preparer.prepare(definition) is not await preparer.prepare(
            definition, tmp_path
        )

    async def test_starts_at_the_same_time_share_one_preparation(
        self, definition, registry, settings
    ):
        gate = Gate()
        preparer = Preparer(registry, settings, offload=gate)

        async with asyncio.TaskGroup() as group:
            waiting = [group.create_task(preparer.prepare(definition)) for _ in range(20)]
            await asyncio.sleep(0)
            gate.open.set()

        assert len({id(task.result()) for task in waiting}) == 1
        assert gate.asked == 1

    async def test_all_who_wait_get_the_refusal_and_it_is_not_remembered(
        self, doc, registry, settings
    ):
        definition = parse_definition(doc.workflow([doc.node("a", "NOPE")], []))
        gate = Gate()
        preparer = Preparer(registry, settings, offload=gate)
        waiting = [asyncio.ensure_future(preparer.prepare(definition)) for _ in range(3)]
        await asyncio.sleep(0)

        gate.open.set()
        outcomes = await asyncio.gather(*waiting, return_exceptions=True)

        assert [type(outcome) for outcome in outcomes] == [DefinitionError] * 3
        assert len(preparer) == 0
        with pytest.raises(DefinitionError):
            await preparer.prepare(definition)
        assert gate.asked == 2

    @pytest.mark.parametrize("cancelled", [0, 1])
    async def test_a_start_that_is_cancelled_leaves_the_others_alone(
        self, definition, registry, settings, cancelled
    ):
        gate = Gate()
        preparer = Preparer(registry, settings, offload=gate)
        waiting = [asyncio.ensure_future(preparer.prepare(definition)) for _ in range(3)]
        await asyncio.sleep(0)

        waiting[cancelled].cancel()
        gate.open.set()
        outcomes = await asyncio.gather(*waiting, return_exceptions=True)

        assert isinstance(outcomes.pop(cancelled), asyncio.CancelledError)
        assert outcomes[0] is outcomes[1]
        assert outcomes[0].version == definition.version

    async def test_what_was_dropped_while_it_was_made_is_not_kept(
        self, definition, registry, settings
    ):
        gate = Gate()
        preparer = Preparer(registry, settings, offload=gate)
        waiting = asyncio.ensure_future(preparer.prepare(definition))
        await asyncio.sleep(0)

        preparer.drop(definition.version)
        gate.open.set()

        assert (await waiting).version == definition.version
        assert len(preparer) == 0

    async def test_what_is_dropped_is_prepared_again(self, definition, other, registry, settings):
        preparer = Preparer(registry, settings)
        first, kept = await preparer.prepare(definition), await preparer.prepare(other)

        preparer.drop(definition.version)

        assert await preparer.prepare(definition) is not first
        assert await preparer.prepare(other) is kept

    async def test_only_so_many_are_kept_and_the_longest_unused_goes_first(
        self, doc, registry, settings
    ):
        preparer = Preparer(registry, settings, capacity=2)
        one, two, three = (parse_definition(doc.line(doc.node(name))) for name in "abc")

        first, second = await preparer.prepare(one), await preparer.prepare(two)
        await preparer.prepare(one)
        await preparer.prepare(three)

        assert await preparer.prepare(one) is first
        assert await preparer.prepare(two) is not second
        assert len(preparer) == 2

    async def test_preparations_are_counted_and_what_is_kept_is_shown(
        self, doc, definition, other, registry, settings
    ):
        meters = Meters()
        preparer = Preparer(registry, settings, capacity=1, meters=meters)

        for wanted in (definition, definition, other, definition):
            await preparer.prepare(wanted)
        with pytest.raises(DefinitionError):
            await preparer.prepare(parse_definition(doc.workflow([doc.node("a")], [])))

        assert meters.counter("yukta.definitions.preparations").value == 3
        assert meters.registry.get_sample_value("yukta_definitions_prepared") == 1

    async def test_a_build_that_executes_more_can_say_so(self, doc, registry, settings):
        definition = parse_definition(doc.line(doc.engine("a", placement={"pool": "p"})))
        able = Preparer(registry, settings, unsupported=UNSUPPORTED_POLICY_KEYS - {"placement"})

        assert (await able.prepare(definition)).nodes["a"].policy.placement.pool == "p"
        with pytest.raises(DefinitionError, match="not enabled"):
            await Preparer(registry, settings).prepare(definition)
