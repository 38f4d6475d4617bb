"""Request bodies: read up to the limit, parsed strictly, checked against a model.

Feature: SEC-03.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from aiohttp import web
from pydantic import BaseModel
from pydantic import ValidationError as PydanticError

from yukta_rx.definitions.parse import fault_of
from yukta_rx.errors import BadRequestError, BodyTooLargeError, Fault, ValidationError
from yukta_rx.model.codec import loads_external

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

Model = TypeVar("Model", bound=BaseModel)


async def read_body(request: web.Request, limit: int) -> bytes:
    """Return the whole body.

    Args:
        request: the request.
        limit: the most bytes that are read.

    Raises:
        BodyTooLargeError: there are more; one that says so beforehand is not read at all.
        BadRequestError: code `malformed_json`: it breaks its own encoding.
    """
    if (request.content_length or 0) > limit:
        raise _too_large(limit)
    if request.headers.get("Expect", "").lower() == "100-continue":
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        # What was written does not count as the begin of the answer.
        request.writer.output_size = 0
    parts: list[bytes] = []
    size = 0
    try:
        async for part in request.content.iter_any():
            size += len(part)
            if size > limit:
                raise _too_large(limit)
            parts.append(part)
    except web.RequestPayloadError as error:
        # Else aiohttp reads on behind the answer, and logs the same error as a defect of its own.
        request.content.feed_eof()
        why = " ".join(str(error).split())[:200]
        detail = f"the body is not what its headers say: {why}"
        raise BadRequestError(detail, code="malformed_json", pointer="") from None
    return b"".join(parts)


def parse_body(data: bytes, *, required: bool) -> Any:
    """Return the JSON value of a body, an empty object for none at all.

    What `Content-Type` says does not matter: every body of this interface is JSON, and a program
    that forgets the header, as curl does, still means it.

    Raises:
        BadRequestError: code `malformed_json`.
        UnserialisablePayloadError: it could not be stored as it is.
    """
    if data.strip():
        return loads_external(data)
    if required:
        raise BadRequestError("this needs a JSON body", code="malformed_json", pointer="")
    return {}


def checked(model: type[Model], value: Any) -> Model:
    """Return a body as its model.

    Raises:
        ValidationError: lists every fault with its pointer.
    """
    try:
        return model.model_validate(value, by_alias=True, by_name=False)
    except PydanticError as error:
        items = error.errors(include_url=False)
        raise ValidationError([_fault(model, value, item) for item in items]) from None


def _fault(model: type[BaseModel], value: Any, item: ErrorDetails) -> Fault:
    found = fault_of(value, item)
    if item["type"] == "extra_forbidden" and len(item["loc"]) == 1:
        known = ", ".join(field.alias or name for name, field in model.model_fields.items())
        return Fault(found.pointer, "unknown_field", f"is not a field here; there is {known}")
    return Fault(found.pointer, found.code, found.detail)


def _too_large(limit: int) -> BodyTooLargeError:
    return BodyTooLargeError(f"the body is larger than {limit} bytes", limitBytes=limit)
