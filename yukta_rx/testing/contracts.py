"""Contract suites to subclass: the rules of a contract as one test method each.

    class TestGreet(PluginContract):
        plugin = greet
        config = {"name": "${payload.name}"}
        payloads = [{"name": "Ada"}, {"name": "Alan"}]

Feature: EXT-01.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from yukta_rx.testing.plugins import BAD_PAYLOADS, PAYLOADS, PluginCase, check_plugin

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class PluginContract:
    """What every plugin keeps, whatever it does; run in the engine and in virtual time.

    Attributes:
        plugin: a decorated function or class, or its spec.
        config: its configuration; the declared example if None.
        payloads: inputs that it can work with; for a trigger the first is the start payload.
        bad_payloads: inputs that it may refuse, but must not choke on.
        files: contents of files that its configuration names, by relative path.
        endless: a trigger that does not end by itself.
        settings: settings that it needs, by their full names.
        workflows: definitions that it may run.
    """

    plugin: ClassVar[Any]
    config: ClassVar[Mapping[str, Any] | None] = None
    payloads: ClassVar[Sequence[Any]] = PAYLOADS
    bad_payloads: ClassVar[Sequence[Any]] = BAD_PAYLOADS
    files: ClassVar[Mapping[str, bytes]] = {}
    endless: ClassVar[bool] = False
    settings: ClassVar[Mapping[str, Any]] = {}
    workflows: ClassVar[Sequence[Mapping[str, Any]]] = ()

    @classmethod
    def check(cls, name: str) -> None:
        """Put the plugin through one check.

        Raises:
            ContractViolation: it breaks the contract.
        """
        case = PluginCase(
            plugin=cls.plugin,
            config=cls.config,
            payloads=cls.payloads,
            bad_payloads=cls.bad_payloads,
            files=cls.files,
            endless=cls.endless,
            settings=cls.settings,
            workflows=cls.workflows,
        )
        check_plugin(name, case)

    def test_example_is_valid(self) -> None:
        """The configuration that it is tried with is valid."""
        self.check("example_is_valid")

    def test_schema_is_complete(self) -> None:
        """It has a summary, and every option a description."""
        self.check("schema_is_complete")

    def test_it_runs(self) -> None:
        """It works with the inputs that it is for."""
        self.check("it_runs")

    def test_ids_are_derived(self) -> None:
        """The same inputs give messages of the same ids, each message its own."""
        self.check("ids_are_derived")

    def test_inputs_stay_as_they_are(self) -> None:
        """It changes no payload that another branch may see."""
        self.check("inputs_stay_as_they_are")

    def test_cancellation_arrives(self) -> None:
        """It stops when it is cancelled, whatever it is doing."""
        self.check("cancellation_arrives")

    def test_no_task_is_left(self) -> None:
        """It leaves no task behind."""
        self.check("no_task_is_left")

    def test_demand_is_respected(self) -> None:
        """It does not take or emit without end while nobody takes what it emits."""
        self.check("demand_is_respected")

    def test_errors_name_the_node(self) -> None:
        """Whatever it makes of bad input, the run ends in order and says where it failed."""
        self.check("errors_name_the_node")
