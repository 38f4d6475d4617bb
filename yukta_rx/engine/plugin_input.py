"""PluginInput: what a stream plugin is given as its input. Feature: ENG-02."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from reactivex import Observer, abc

from yukta_rx.model.message import Message
from yukta_rx.streams.aio import AsyncIterableBody
from yukta_rx.streams.flow import Flow
from yukta_rx.streams.plan import NodePlan, Slot

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable


class PluginInput(Flow[Message]):
    """A stream plugin's input: iterate it directly, or use it as a Flow with Rx operators.

    `latest` is the message that the plugin is working on, as far as that can be known: the last
    one that it took or, with Rx operators, the one being pushed.
    """

    def __init__(
        self, inlet: AsyncIterator[Any], node_id: str, taken: Callable[[Message], Message]
    ) -> None:
        body = AsyncIterableBody(self._as_source)
        super().__init__(NodePlan(name=f"{node_id} input", body=body, last=Slot.CALL))
        self.latest: Message | None = None
        self._inlet = inlet
        self._taken = taken

    def __aiter__(self) -> AsyncIterator[Message]:
        return self

    async def __anext__(self) -> Message:
        msg: Message = await anext(self._inlet)
        self.latest = msg
        return self._taken(msg)

    async def _as_source(self) -> AsyncIterator[Message]:
        async for msg in self._inlet:
            yield self._taken(msg)

    def _subscribe_core(
        self, observer: abc.ObserverBase[Message], scheduler: abc.SchedulerBase | None = None
    ) -> abc.DisposableBase:
        def push(msg: Message) -> None:
            self.latest = msg
            observer.on_next(msg)

        marking = Observer(push, observer.on_error, observer.on_completed)
        return super()._subscribe_core(marking, scheduler)
