"""Sessions with their workflows as one file: a zip of folders, or a JSON document.

In a zip each folder is a session of that name: its JSON files that are workflows are its workflows,
and `_session.json` has its settings. What comes in is never unpacked to a disk, and its size is
known before any of it is read. Features: DEF-01, DUR-05.
"""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass, field
from io import BytesIO
from typing import TYPE_CHECKING, Any, Final
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile, ZipInfo

from yukta_rx.definitions.views import SessionRequest, SessionView
from yukta_rx.errors import Fault, ValidationError, YuktaError, json_pointer
from yukta_rx.model.codec import dumps_plain, loads_external

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

SETTINGS_FILE: Final = "_session.json"
"""No workflow can be called so: an id begins with a letter or digit."""

DEFAULT_SESSION: Final = "default"
"""Session of the files that are in no folder."""

MAX_MEMBERS: Final = 10_000
"""Files and folders that a zip may have."""

_NEWEST: Final = (1980, 1, 1, 0, 0, 0)
_ENCRYPTED: Final = 1
_SHOWN_ONLY: Final = frozenset({"workflowIds", "createdAt", "updatedAt", "counters"})


def write_zip(views: Iterable[SessionView]) -> bytes:
    """Return sessions as a zip; the same sessions always give the same bytes."""
    data = BytesIO()
    with ZipFile(data, "w", ZIP_DEFLATED) as archive:
        for view in views:
            files = {SETTINGS_FILE: view.settings()}
            files |= {f"{item.workflow_id}.json": item.document for item in view.workflows}
            for name, document in files.items():
                member = ZipInfo(f"{view.session_id}/{name}", _NEWEST)
                member.compress_type = ZIP_DEFLATED
                member.external_attr = 0o644 << 16
                archive.writestr(member, readable(document))
    return data.getvalue()


def readable(document: Any) -> str:
    """Return a document as JSON for people, which keeps every digit."""
    return json.dumps(json.loads(dumps_plain(document)), indent=2, ensure_ascii=False) + "\n"


def read_bundle(data: bytes, *, max_bytes: int, prune: bool = False) -> list[SessionRequest]:
    """Return what a bundle asks for.

    A JSON bundle is `{"sessions": [...]}` with session documents as they are read and written
    elsewhere; an `etag` in one is the state that the change is based on. A session of which the
    bundle has no settings keeps its own.

    Args:
        data: a zip, or JSON.
        max_bytes: bytes that a zip may unpack to.
        prune: remove workflows that the bundle does not have from the sessions that it has.

    Raises:
        BadRequestError: code `malformed_json`: it is neither.
        ValidationError: it is not a bundle, or a zip that is not safe to read.
    """
    if data[:2] == b"PK":
        return _of_zip(data, max_bytes, prune)
    return list(_of_json(loads_external(data), prune))


def _of_json(bundle: Any, prune: bool) -> Iterator[SessionRequest]:
    sessions = bundle.get("sessions") if isinstance(bundle, dict) else None
    if not isinstance(sessions, list) or set(bundle) != {"sessions"}:
        raise ValidationError([Fault("", "invalid_type", "must be an object with a list sessions")])
    for index, session in enumerate(sessions):
        place = f"/sessions/{index}"
        if not isinstance(session, dict):
            raise ValidationError([Fault(place, "invalid_type", "must be a session document")])
        document = {name: value for name, value in session.items() if name not in _SHOWN_ONLY}
        etag = document.pop("etag", None)
        if etag is not None and not isinstance(etag, str):
            raise ValidationError([Fault(f"{place}/etag", "invalid_type", "must be text")])
        yield SessionRequest(
            document=document, if_match=etag, prune=prune, keep_settings=True, place=place
        )


# --- zip -----------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Folder:
    settings: dict[str, Any] = field(default_factory=dict)
    workflows: list[Any] = field(default_factory=list)
    places: list[str] = field(default_factory=list)


def _of_zip(data: bytes, max_bytes: int, prune: bool) -> list[SessionRequest]:
    folders: dict[str, _Folder] = {}
    faults: list[Fault] = []
    try:
        with ZipFile(BytesIO(data)) as archive:
            for member in _safe_members(archive, max_bytes):
                _read_member(member.filename, archive.read(member), folders, faults)
    except (BadZipFile, zlib.error, EOFError, NotImplementedError, OverflowError) as error:
        raise _refused("", f"is no zip file that can be read: {error}") from error
    if not folders and not faults:
        raise _refused("", "there is no workflow and no session in it")
    if faults:
        raise ValidationError(faults)
    return [
        SessionRequest(
            document={**folder.settings, "sessionId": name, "workflows": folder.workflows},
            prune=prune,
            keep_settings=True,
            place=json_pointer([name]),
            places=folder.places,
        )
        for name, folder in folders.items()
    ]


def _safe_members(archive: ZipFile, max_bytes: int) -> list[ZipInfo]:
    """Return the files of a zip by name, none of them read yet.

    Raises:
        ValidationError: there is too much of it, or a member that no honest program writes.
    """
    members = archive.infolist()
    if len(members) > MAX_MEMBERS:
        raise _refused("", f"has more than {MAX_MEMBERS} members")
    size = sum(member.file_size for member in members)
    if size > max_bytes:
        raise _refused("", f"unpacks to {size} bytes; {max_bytes} are allowed")
    seen: set[str] = set()
    for member in members:
        name = member.orig_filename
        if name.startswith("/") or ".." in name.split("/") or set(name) & set("\\:\0"):
            raise _refused(json_pointer([ascii(name)[1:-1]]), "is not a path below the bundle")
        if member.flag_bits & _ENCRYPTED:
            raise _refused(json_pointer([name]), "is encrypted")
        if member.compress_type not in (ZIP_STORED, ZIP_DEFLATED):
            raise _refused(json_pointer([name]), "is packed in a way other than deflate")
        if name in seen:
            raise _refused(json_pointer([name]), "is there twice")
        seen.add(name)
    return sorted(
        (member for member in members if _wanted(member.filename)), key=lambda item: item.filename
    )


def _wanted(name: str) -> bool:
    """Whether a member is looked at: a JSON file that is not hidden."""
    return name.endswith(".json") and not any(part.startswith(".") for part in name.split("/"))


def _read_member(name: str, data: bytes, folders: dict[str, _Folder], faults: list[Fault]) -> None:
    *above, file = name.split("/")
    session_id = above[0] if above else DEFAULT_SESSION
    place = json_pointer([name])
    try:
        document = loads_external(data.removeprefix(b"\xef\xbb\xbf"))
    except YuktaError as error:
        faults.append(Fault(place, error.code, error.detail))
        return
    if file == SETTINGS_FILE and len(above) == 1:
        if not isinstance(document, dict) or "workflows" in document:
            faults.append(Fault(place, "invalid_type", "must be the settings of a session"))
        elif document.setdefault("sessionId", session_id) != session_id:
            detail = f"must be {session_id}, as its folder"
            faults.append(Fault(f"{place}/sessionId", "invalid_id", detail))
        else:
            folders.setdefault(session_id, _Folder()).settings = document
    elif isinstance(document, dict) and not {"workflowId", "nodes"}.isdisjoint(document):
        folder = folders.setdefault(session_id, _Folder())
        folder.workflows.append(document)
        folder.places.append(place)


def _refused(pointer: str, detail: str) -> ValidationError:
    return ValidationError([Fault(pointer, "invalid_bundle", detail)])
