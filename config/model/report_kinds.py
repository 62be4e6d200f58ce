"""The kinds of findings of a report: their names, what should hold, and whether they are failures by default."""

from __future__ import annotations

from typing import NamedTuple


class ReportKind(NamedTuple):
    """One kind of findings. In JUnit it is a test case."""

    name: str
    expectation: str
    """What holds if there are no findings of this kind."""
    is_failure: bool
    """By default."""


REPORT_KINDS = (
    ReportKind("never_received", "every message was received", True),
    ReportKind("never_settled", "every message that was received is settled", True),
    ReportKind("dead_letters", "no dead-letter queue has messages", True),
    ReportKind("unmatched", "every message sent to a topic matched a subscription", True),
    ReportKind("over_quota", "Azure would have allowed everything", True),
    ReportKind("dead_lettered", "no message was dead-lettered", False),
    ReportKind("lost_locks", "no lock was lost", False),
    ReportKind("expired", "no message expired", False),
    ReportKind("refused", "no operation was refused", False),
    ReportKind("links_closed", "no link was closed with an error", False),
)
DEFAULT_FAIL_ON = tuple(one.name for one in REPORT_KINDS if one.is_failure)
ALL, NONE = "all", "none"
FAIL_ON = "names of findings with commas between them, all or none"


def parse_fail_on(text: str) -> tuple[str, ...]:
    """Returns the kinds that are failures, in the order of the table. Raises `ValueError` for other names."""
    names = {name.strip() for name in text.split(",")}
    if names == {ALL}:
        return tuple(one.name for one in REPORT_KINDS)
    if names == {NONE}:
        return ()
    known = tuple(one.name for one in REPORT_KINDS if one.name in names)
    if len(known) != len(names):
        raise ValueError
    return known
