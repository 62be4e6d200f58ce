"""Reads the project's Markdown pages: code blocks, inline code, links and headings."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from tests.packaging.dockerfile import ROOT

if TYPE_CHECKING:
    from pathlib import Path

_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`([^`\n]+)`")
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Page:
    """One Markdown file."""

    path: Path

    @property
    def name(self) -> str:
        return str(self.path.relative_to(ROOT))

    @property
    def text(self) -> str:
        return self.path.read_text()

    def blocks(self, *languages: str) -> list[str]:
        """The contents of the fenced code blocks in one of these languages."""
        return [body for language, body in _BLOCK.findall(self.text) if language in languages]

    def prose(self) -> str:
        """The text without code blocks and comments."""
        return _COMMENT.sub("", _BLOCK.sub("", self.text))

    def inline_code(self) -> list[str]:
        """What stands between backticks in the prose. A line break counts as a space."""
        joined = re.sub(r"(?<!\n)\n(?![\n|#\-*\d])", " ", self.prose())
        return _CODE.findall(joined)

    def command_lines(self) -> list[str]:
        """Lines of shell blocks, without their comments, and inline code."""
        lines = [line for block in self.blocks("sh", "console") for line in block.splitlines()]
        stripped = [re.sub(r"(^|\s)# .*$", "", line).strip() for line in lines]
        return [line for line in stripped if line] + self.inline_code()

    def links(self) -> list[str]:
        """The targets of relative links."""
        return [link for link in _LINK.findall(self.prose()) if not re.match(r"[a-z]+:", link)]

    def anchors(self) -> set[str]:
        """The anchors that GitHub gives to the headings."""
        return {_anchor(heading) for heading in _HEADING.findall(self.prose())}


def _anchor(heading: str) -> str:
    text = re.sub(r"[^\w\- ]", "", heading.replace("`", "").lower())
    return text.strip().replace(" ", "-")


@cache
def pages() -> tuple[Page, ...]:
    """Every page that a user or a contributor reads."""
    paths = [
        *ROOT.glob("*.md"),
        *(ROOT / "docs").glob("*.md"),
        *(ROOT / ".github").rglob("*.md"),
        ROOT / "examples" / "README.md",
        ROOT / "pytest-peeklock" / "README.md",
        ROOT / "tests" / "clients" / "SCENARIOS.md",
    ]
    return tuple(Page(path) for path in sorted(paths))
