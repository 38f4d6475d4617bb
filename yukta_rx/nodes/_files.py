"""Where file nodes may go: only below the folders of `yukta.files.allowed-dirs`.

Feature: SEC-03.
"""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

from yukta_rx.errors import BadInputError


def locate(path: str, settings: Any, base_dir: Path | None) -> Path:
    """Return the real place of an existing, allowed, regular file.

    Links are followed first, so that none leads out of an allowed folder.

    Args:
        path: as written in the workflow; a relative one starts at `base_dir`.
        settings: the settings in force; without any, no folder is allowed.
        base_dir: the folder of the definition, or the data folder of the server.

    Raises:
        BadInputError: the file is not allowed, does not exist or is not a regular file.
    """
    place = _allowed(path, settings, base_dir)
    try:
        mode = place.stat().st_mode
    except OSError as error:
        raise BadInputError(f"`{path}` cannot be read: {error.strerror} ({place})") from None
    if not stat.S_ISREG(mode):
        raise BadInputError(f"`{path}` is not a regular file ({place})")
    return place


def locate_target(path: str, settings: Any, base_dir: Path | None) -> Path:
    """Return the real place of an allowed file to write; it need not exist, but its folder must.

    Args:
        path: as for `locate`.
        settings: as for `locate`.
        base_dir: as for `locate`.

    Raises:
        BadInputError: the file is not allowed, its folder does not exist, or something that is no
            regular file is there.
    """
    place = _allowed(path, settings, base_dir)
    try:
        mode = place.stat().st_mode
    except FileNotFoundError:
        if not place.parent.is_dir():
            raise BadInputError(
                f"`{path}` cannot be written: there is no folder {place.parent}"
            ) from None
    except OSError as error:
        raise BadInputError(f"`{path}` cannot be written: {error.strerror} ({place})") from None
    else:
        if not stat.S_ISREG(mode):
            what = "a folder" if stat.S_ISDIR(mode) else "not a regular file"
            raise BadInputError(f"`{path}` cannot be written: it is {what} ({place})")
    return place


def _allowed(path: str, settings: Any, base_dir: Path | None) -> Path:
    files = getattr(settings, "files", None)
    allowed = list(getattr(files, "allowed_dirs", ()))
    try:
        place = (base_dir or Path()).joinpath(path).resolve()
        folders = [Path(folder).resolve() for folder in allowed]
    except (OSError, RuntimeError, ValueError) as error:
        raise BadInputError(f"`{path!a}` is no usable path: {error}") from None
    if not any(place.is_relative_to(folder) for folder in folders):
        raise BadInputError(
            f"`{path}` is outside the folders that file nodes may use; add its folder to"
            " yukta.files.allowed-dirs"
        )
    return place
