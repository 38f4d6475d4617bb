"""SUB_WORKFLOW: another workflow of the session, once per message.  Feature: ENG-07."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from yukta_rx.model.workflow import id_of_kind
from yukta_rx.plugins.contract import Message, NodeContext, PluginConfig, fixed, processor


class SubWorkflowConfig(PluginConfig):
    """Options of SUB_WORKFLOW."""

    workflow_id: Annotated[str, id_of_kind("workflowId"), fixed()] = Field(
        description="The workflow to run; what is stored under this id when a message comes."
    )
    payload: Any = Field(
        None, description="Start payload of the run; the message's payload by default."
    )


# No idle limit: the run has clocks and a deadline of its own.
@processor(
    "SUB_WORKFLOW",
    config=SubWorkflowConfig,
    default_timeout=None,
    pure=True,
    exact=True,
    stateful=True,
    independent=True,
    example={"workflowId": "price-of-one", "payload": "${payload.order:json}"},
)
async def sub_workflow(msg: Message, cfg: SubWorkflowConfig, ctx: NodeContext) -> dict[str, Any]:
    """Run a workflow of the session for each message and emit `{executionId, results}`.

    The run is one like any other, tied to this node: it is cancelled with it and paused with the
    parent run. `results` are the payloads that reached its terminals, in the order in which they
    came. If it ends other than SUCCESS the attempt fails.

    Raises:
        SubWorkflowError: it ended badly, or too many runs are alive below the first one.
        BadInputError: there is no such workflow, it would lie too deep, or it gives more results
            than are collected.
    """
    given = "payload" in cfg.model_fields_set
    child = await ctx.run_child(cfg.workflow_id, cfg.payload if given else msg.payload, msg)
    return {"executionId": child.execution_id, "results": child.results}
