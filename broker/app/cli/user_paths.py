"""The paths that users give to commands."""

from __future__ import annotations

from pathlib import Path


class BadPath(OSError):
    """A path has the wrong form. The text says why."""


def user_path(text: str) -> Path:
    """Returns the path, with the home folder in place of `~`. Raises `BadPath` for an unknown home."""
    try:
        return Path(text).expanduser()
    except RuntimeError:
        raise BadPath(f"{text} begins with the home folder of an unknown user") from None
