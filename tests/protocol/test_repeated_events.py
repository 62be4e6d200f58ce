"""Events that repeat: the first is a line, the others are a number."""

from __future__ import annotations

import uuid

import pytest

from protocol.repeated_events import KINDS_MAX, TEXT_MAX_CHARACTERS, WINDOW_S, RepeatedEvents


class Log:
    """Keeps lines."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, dict[str, object]]] = []

    def info(self, event: str, **fields: object) -> None:
        self.lines.append((event, fields))


@pytest.fixture
def log() -> Log:
    return Log()


class Time:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def repeats(time: Time) -> RepeatedEvents:
    return RepeatedEvents(time)


def test_the_first_is_written_at_once_and_the_others_as_a_number(log, time, repeats):
    """The summary at the end of the window has the fields of the last event."""
    for number in range(1_000):
        repeats.note(log.info, "refused", "orders", entity="orders", number=number)
    assert [("refused", {"entity": "orders", "number": 0})] == log.lines
    repeats.write_summaries()
    assert 1 == len(log.lines)
    time.now_s += WINDOW_S
    repeats.write_summaries()
    summary = {"count": 999, "seconds": WINDOW_S, "entity": "orders", "number": 999}
    assert ("refused.repeated", summary) == log.lines[-1]
    repeats.note(log.info, "refused", "orders", entity="orders", number=1_000)
    assert ("refused", {"entity": "orders", "number": 1_000}) == log.lines[-1]


def test_what_happened_once_has_one_line(log, time, repeats):
    """No line says that nothing was left out."""
    repeats.note(log.info, "refused", "orders")
    time.now_s += WINDOW_S
    repeats.write_summaries()
    assert 1 == len(log.lines)


def test_the_summary_of_an_ended_window_is_written_with_the_next_event(log, time, repeats):
    """Also if `write_summaries` is not called in between."""
    for _ in range(3):
        repeats.note(log.info, "refused", "orders")
    time.now_s += WINDOW_S
    repeats.note(log.info, "refused", "invoices")
    assert ["refused", "refused.repeated", "refused"] == [event for event, _ in log.lines]


def test_write_all_writes_the_remaining_summaries(log, repeats):
    """Nothing that was counted is lost with an orderly stop."""
    for _ in range(3):
        repeats.note(log.info, "refused", "orders")
    repeats.write_all()
    assert 2 == log.lines[-1][1]["count"]


def test_kinds_that_clients_make_up_are_bounded(log, time, repeats):
    """Lines and memory are bounded. Other events are still counted separately."""
    for number in range(41_000):
        repeats.note(log.info, "refused", number, wider_kind="amqp:not-found", entity=number)
    assert KINDS_MAX + 1 == len(log.lines)
    assert KINDS_MAX + 1 == len(repeats._events["refused"])
    repeats.note(log.info, "dead_lettered", "orders")
    assert "dead_lettered" == log.lines[-1][0]
    time.now_s += WINDOW_S
    repeats.write_summaries()
    assert KINDS_MAX + 3 == len(log.lines)
    event, fields = log.lines[-1]
    assert ("refused.repeated", 41_000 - KINDS_MAX - 1) == (event, fields["count"])
    assert fields["various"] is True
    assert not repeats._events["refused"]


def test_each_event_has_a_tracking_id_that_leads_to_its_lines(log, repeats, time):
    """They are unique, and all but the last group is what the lines have."""
    given = [
        repeats.note(log.info, "refused", "orders", tracked=True, entity="orders")
        for _ in range(1_000)
    ]
    time.now_s += WINDOW_S
    repeats.write_summaries()
    assert 1_000 == len(set(given))
    assert all(str(uuid.UUID(one)) == one for one in given)
    assert [given[0], given[-1]] == [fields["tracking_id"] for _, fields in log.lines]
    assert {one.rpartition("-")[0] for one in given} == {given[0].rpartition("-")[0]}


def test_several_lines_at_once_and_more_in_number(log, time, repeats):
    """Where each is worth a line, as far as they are few."""
    for number in range(5):
        more = 100 if number == 0 else 0
        repeats.note(log.info, "dead_lettered", "orders", at_once_max=3, more=more, number=number)
    assert [0, 1, 2] == [fields["number"] for _, fields in log.lines]
    time.now_s += WINDOW_S
    repeats.write_summaries()
    assert ("dead_lettered.repeated", 102) == (log.lines[-1][0], log.lines[-1][1]["count"])


def test_what_a_client_wrote_is_cut(log, repeats):
    """The name of an entity may be as long as a frame."""
    repeats.note(log.info, "refused", "long", entity="x" * 60_000)
    assert TEXT_MAX_CHARACTERS + 3 == len(str(log.lines[0][1]["entity"]))
