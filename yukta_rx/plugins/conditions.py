"""The option type for a condition: a text that is compiled when a configuration is checked.

    class Config(PluginConfig):
        when: When = Field(description="...")
        unless: When | None = Field(None, description="...")

A condition reads the message itself, so it takes no `${...}`.  Features: EXT-01, SEC-02.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

from pydantic_core import PydanticCustomError, core_schema

from yukta_rx.errors import BadInputError
from yukta_rx.plugins.config import INVALID_EXPRESSION, fixed
from yukta_rx.security.expressions import (
    MAX_SOURCE,
    Condition,
    MessageScope,
    compile_condition,
)

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler

__all__ = ["Condition", "MessageScope", "When"]

_NO_EXPRESSION: Final = "is a condition, which reads names without `${}`: payload.x"


class _Compiled:
    """Mark of an option whose text becomes a Condition."""

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        return core_schema.no_info_after_validator_function(
            _compile, core_schema.str_schema(strict=True), serialization=_AS_WRITTEN
        )

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return {"type": "string", "maxLength": MAX_SOURCE, "x-yukta-condition": True}


def _compile(source: str) -> Condition:
    try:
        return compile_condition(source)
    except BadInputError as error:
        raise PydanticCustomError(
            INVALID_EXPRESSION, "{detail}", {"detail": error.detail}
        ) from error


_AS_WRITTEN: Final = core_schema.plain_serializer_function_ser_schema(
    lambda condition: condition.source, return_schema=core_schema.str_schema()
)

When = Annotated[Condition, _Compiled(), fixed(_NO_EXPRESSION)]
"""A condition over `payload`, `headers`, `id` and `attempt`; see `security.expressions`."""
