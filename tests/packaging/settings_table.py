"""The table of all settings in docs/configuration.md, made from the settings themselves.

`python -m tests.packaging.settings_table` writes it there.
"""

from __future__ import annotations

from pathlib import Path

from broker.app.cli.arguments import shown_default
from config.settings.setting_sources import SETTINGS
from config.settings.settings import Settings

PAGE = Path(__file__).resolve().parents[2] / "docs" / "configuration.md"
BEGIN, END = "<!-- settings -->", "<!-- /settings -->"
IN_DATA_FOLDER = {"tls_folder": "`tls` in the data folder", "storage": "a file in the data folder"}
"""Defaults that depend on who runs the broker."""


def table() -> str:
    """One row a setting, in the order of `peeklock serve --help`."""
    rows = ["| setting | default | |", "|---|---|---|"]
    for one in SETTINGS:
        default = IN_DATA_FOLDER.get(one.name)
        if default is None:
            value = getattr(Settings(), one.field)
            default = f"`{shown_default(one.field, value)}`" if value is not None else ""
            default = "off" if value is False else default
        rows.append(f"| `{one.name}` | {default} | {one.explanation.replace('|', '&#124;')} |")
    return "\n".join(rows) + "\n"


def written() -> str:
    """What the page has now."""
    return PAGE.read_text().partition(BEGIN + "\n")[2].partition(END)[0]


if __name__ == "__main__":
    text = PAGE.read_text()
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}\n{table()}{END}{after}")
