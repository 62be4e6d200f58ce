"""The Dockerfile as data, so that tests run the very commands it contains."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@dataclass
class Stage:
    """One `FROM` and what follows it."""

    base: str
    name: str
    instructions: list[tuple[str, str]] = field(default_factory=list)

    def of(self, instruction: str) -> list[str]:
        return [text for name, text in self.instructions if name == instruction]

    def only(self, instruction: str) -> str:
        (text,) = self.of(instruction)
        return text

    @property
    def environment(self) -> dict[str, str]:
        words = [word for text in self.of("ENV") for word in shlex.split(text)]
        return dict(word.split("=", 1) for word in words)

    @property
    def health_check(self) -> list[str]:
        command: list[str] = json.loads(self.only("HEALTHCHECK").partition("CMD ")[2])
        return command


def stages() -> list[Stage]:
    text = (ROOT / "Dockerfile").read_text()
    text = re.sub(r"^#.*\n", "", text, flags=re.MULTILINE)
    found: list[Stage] = []
    for line in re.sub(r"\\\n\s*", "", text).splitlines():
        instruction, _, rest = line.partition(" ")
        if instruction == "FROM":
            base, _, name = rest.partition(" AS ")
            found.append(Stage(base, name))
        elif instruction:
            found[-1].instructions.append((instruction, rest))
    return found
