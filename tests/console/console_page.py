"""The console as a user sees it: open a page of it, find what it shows, press what it offers."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import ConsoleMessage, Locator, Page

expect.set_options(timeout=10_000)
RULES = {
    "runOnly": {
        "type": "tag",
        "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"],
    }
}


class ConsolePage:
    """A page of the console of one broker."""

    def __init__(self, page: Page, port: int) -> None:
        self.page = page
        self.address = f"http://localhost:{port}/"
        self.logged: list[str] = []
        """Errors and warnings. Each test must leave it empty."""
        page.on("console", self._note)
        page.on("pageerror", lambda error: self.logged.append(str(error)))

    def _note(self, message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"}:
            self.logged.append(f"{message.type}: {message.text} {message.location.get('url', '')}")

    def open(self, where: str = "#/overview") -> ConsolePage:
        """Opens a page by what is after the `#`."""
        if self.page.url.startswith(self.address):
            self.page.evaluate("hash => { location.hash = hash }", where)
        else:
            self.page.goto(self.address + where)
        expect(self.page.get_by_text("Live", exact=True)).to_be_visible()
        return self

    @contextmanager
    def refused(self, status: int) -> Iterator[None]:
        """The broker refuses one request in the block. Browsers log that, and nothing can prevent it."""
        yield
        self.page.wait_for_function("() => true")
        (found,) = self.logged
        assert f"status of {status}" in found
        self.logged.clear()

    # --- what is shown -----------------------------------------------------------------------------

    def text(self, text: str, **options: Any) -> Locator:
        return self.page.get_by_text(text, **options)

    def button(self, name: str, **options: Any) -> Locator:
        return self.page.get_by_role("button", name=name, **options)

    def link(self, name: str, **options: Any) -> Locator:
        return self.page.get_by_role("link", name=name, **options)

    def field(self, label: str, **options: Any) -> Locator:
        return self.page.get_by_label(label, **options)

    def input(self, label: str) -> Locator:
        return self.page.get_by_role("textbox", name=label, exact=True)

    def row(self, key: object) -> Locator:
        """A row of a table by its key: the path of an entity, the number of a message."""
        return self.page.locator(f'tr[data-row="{key}"]')

    @property
    def rows(self) -> Locator:
        return self.page.locator("tr[data-row]")

    @property
    def notices(self) -> Locator:
        return self.page.locator(".notices")

    def select(self, *numbers: int) -> None:
        for number in numbers:
            self.row(number).get_by_role("checkbox").check()

    def violations(self) -> list[str]:
        """Returns what axe says about the page as it is now."""
        found = Axe().run(self.page, options=RULES)
        return [
            f"{one['id']}: {one['help']}: {[node['html'][:200] for node in one['nodes'][:3]]}"
            for one in found.response["violations"]
        ]

    @property
    def overflow(self) -> int:
        """By how many pixels the page is wider than the window."""
        width: int = self.page.evaluate("document.documentElement.scrollWidth - innerWidth")
        return width
