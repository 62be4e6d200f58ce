"""The scenarios through the SDK's blocking client: the same text, without `async` and `await`.

The two halves of the SDK have the same names and differ in nothing else, so one source serves both:
modules of `scenarios` are rewritten as they are imported here, line for line.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import io
import sys
import tokenize
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import types
    from collections.abc import Iterator, Sequence

PACKAGE = "tests.clients.python.scenarios"
NAMES = {
    "__aenter__": "__enter__",
    "AsyncExitStack": "ExitStack",
    "AsyncIterator": "Iterator",
    "asynccontextmanager": "contextmanager",
    "enter_async_context": "enter_context",
}


def rewrite(source: str) -> str:
    """The blocking form of a module; every token stays on its line."""
    tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
    return tokenize.untokenize(_kept(tokens))


def _kept(tokens: Sequence[tokenize.TokenInfo]) -> Iterator[tuple[int, str]]:
    skip = False
    for index, token in enumerate(tokens):
        following = tokens[index + 1].string if index + 1 < len(tokens) else ""
        if skip:
            skip = False
        elif token.string == "." and following == "aio":
            skip = True  # azure.servicebus.aio and azure.servicebus are twins
        elif token.string not in ("async", "await"):
            yield token.type, NAMES.get(token.string, token.string)


class BlockingLoader(importlib.machinery.SourceFileLoader):
    """Compiles the rewritten text, and leaves no bytecode of it behind."""

    def get_code(self, fullname: str) -> types.CodeType:
        source = self.get_source(fullname)
        assert source is not None
        return compile(rewrite(source), self.path, "exec")


class BlockingFinder(importlib.abc.MetaPathFinder):
    """Finds the scenarios."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: types.ModuleType | None = None,
    ) -> importlib.machinery.ModuleSpec | None:
        if not fullname.startswith(PACKAGE):
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.origin is not None:
            spec.loader = BlockingLoader(fullname, spec.origin)
        return spec


if __name__ == "__main__":
    sys.meta_path.insert(0, BlockingFinder())
    from tests.clients.python.program import main

    main("python", lambda outcome: outcome)
