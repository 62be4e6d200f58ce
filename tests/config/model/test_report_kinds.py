"""Which findings of a report are failures."""

from __future__ import annotations

import pytest

from config.model.report_kinds import DEFAULT_FAIL_ON, REPORT_KINDS, parse_fail_on


def test_names_are_read_in_any_order():
    assert ("dead_letters", "refused") == parse_fail_on("refused, dead_letters")
    assert () == parse_fail_on("none")
    assert tuple(one.name for one in REPORT_KINDS) == parse_fail_on("all")
    assert set(DEFAULT_FAIL_ON) < set(parse_fail_on("all"))


@pytest.mark.parametrize("text", ["", "refused,", "refusal", "all,refused", "Refused"])
def test_other_names_are_refused(text):
    with pytest.raises(ValueError):
        parse_fail_on(text)
