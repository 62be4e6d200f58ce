"""The generator's own checks: each kind of damage is seen, and a clean run is called clean.

No broker and no socket here; the messages are built as the sender builds them.
"""

from __future__ import annotations

from array import array
from typing import Any

import pytest

from tests.bench.cases.setting import Comparison
from tests.bench.payload import (
    DATA_SECTION,
    MIN_BODY_BYTES,
    STAMP,
    STAMP_OFFSET,
    DeliveryChecks,
    Verdict,
    encode,
    shares,
)
from tests.bench.roles import Load, percentiles_us
from tests.bench.rows import Row, row_of

RUN = 7
BODY_BYTES = 64


def message(sequence: int, sender: int = 0, run: int = RUN, sent_ns: int = 0) -> bytes:
    encoded, body_at, _ = encode(run, BODY_BYTES)
    STAMP.pack_into(encoded, body_at + STAMP_OFFSET, sender, sequence, sent_ns)
    return bytes(encoded)


def verdict_on(*payloads: bytes, expected: int) -> Verdict:
    checks = DeliveryChecks(RUN, BODY_BYTES, [expected])
    checks.add(payloads, 0, now_ns=0)
    return checks.verdict()


def test_a_complete_run_in_order_is_clean():
    """Every message once, in order: nothing to report."""
    verdict = verdict_on(message(0), message(1), message(2), expected=3)
    assert Verdict(0, 0, 0, 0, 0) == verdict
    assert verdict.is_clean


def test_a_missing_message_is_lost():
    """A gap is a loss even when everything around it arrived."""
    assert Verdict(1, 0, 0, 0, 0) == verdict_on(message(0), message(2), expected=3)


def test_a_second_delivery_is_a_duplicate():
    """A repeat counts as duplicate alone: its place in the order was judged the first time."""
    assert Verdict(0, 1, 0, 0, 0) == verdict_on(message(0), message(1), message(0), expected=2)


def test_a_message_behind_its_follower_is_out_of_order():
    """One message moved is one break of order."""
    verdict = verdict_on(message(0), message(2), message(1), message(3), expected=4)
    assert Verdict(0, 0, 0, 1, 0) == verdict


@pytest.mark.parametrize("place", [-1, -BODY_BYTES + MIN_BODY_BYTES, -BODY_BYTES + 9])
def test_a_changed_byte_is_corrupt(place: int):
    """The last byte, the first of the filler and the size in the head are all looked at."""
    damaged = bytearray(message(0))
    damaged[place] ^= 1
    assert Verdict(1, 0, 1, 0, 0) == verdict_on(bytes(damaged), expected=1)


def test_a_shortened_body_is_corrupt():
    """A body that lost its end no longer ends as it should."""
    assert Verdict(1, 0, 1, 0, 0) == verdict_on(message(0)[:-1], expected=1)


def test_an_impossible_sender_or_sequence_is_corrupt():
    """Nobody sent these."""
    verdict = verdict_on(message(0, sender=5), message(9), expected=1)
    assert Verdict(1, 0, 2, 0, 0) == verdict


@pytest.mark.parametrize("payload", [message(0, run=RUN + 1), b"", DATA_SECTION + b"x" * 500])
def test_a_message_of_another_run_is_foreign(payload: bytes):
    """What an earlier run left behind is told apart from damage."""
    assert Verdict(1, 0, 0, 0, 1) == verdict_on(payload, expected=1)


def test_order_is_judged_per_link_and_per_sender():
    """Two links share one sender's messages; each must rise, but neither has them all."""
    checks = DeliveryChecks(RUN, BODY_BYTES, [4, 1], links=2)
    checks.add([message(2), message(3), message(0, sender=1)], 0, now_ns=0)
    checks.add([message(0), message(1)], 1, now_ns=0)
    assert checks.verdict().is_clean


def test_a_run_in_parts_goes_on_where_it_ended():
    """The second part knows the first part's sequences as none of its own."""
    checks = DeliveryChecks(RUN, BODY_BYTES, [2], first_sequence=10)
    checks.add([message(10), message(11), message(9)], 0, now_ns=0)
    assert Verdict(0, 0, 1, 0, 0) == checks.verdict()


def test_latency_counts_from_the_time_in_the_message():
    """The stamp is the scheduled time, so a stalled broker pays for what it held up."""
    checks = DeliveryChecks(RUN, BODY_BYTES, [1])
    checks.add([message(0, sent_ns=1_000)], 0, now_ns=5_000)
    assert [4_000] == list(checks.latencies_ns)


def test_shares_add_up():
    """No message is left over when senders do not divide the count."""
    assert [4, 3, 3] == shares(10, 3)


def test_percentiles_of_a_known_row():
    """One to a hundred microseconds."""
    row = array("q", [n * 1_000 for n in range(100, 0, -1)])
    assert {"p50": 51.0, "p95": 95.0, "p99": 99.0, "max": 100.0} == percentiles_us(row)


def test_a_body_too_small_for_its_stamp_is_refused():
    """Better no run than one whose checks cannot work."""
    with pytest.raises(ValueError, match="at least"):
        Load(port=1, address="q", count=1, body_bytes=MIN_BODY_BYTES - 1)


def row(messages_per_s: float, broker_cpu_us: float) -> Row:
    return Row("", {"messages_per_s": messages_per_s, "broker_cpu_us": broker_cpu_us})


def test_a_large_queue_is_judged_by_the_middle_round():
    """One disturbed round decides nothing, in either direction."""
    pairs = [(row(90, 11), row(100, 10)), (row(10, 90), row(100, 10)), (row(200, 5), row(100, 10))]
    result = Comparison(pairs).row("", min_speed=0.85)
    assert (0.9, 1.1) == (result.figures["speed_ratio"], result.figures["cpu_ratio"])
    assert result.is_clean


def test_a_large_queue_slower_than_the_tolerance_fails():
    """A sixth slower is too slow."""
    comparison = Comparison([(row(84, 10), row(100, 10))])
    assert not comparison.row("", min_speed=0.85).is_clean


def result_of(role: str, begin_ns: int, end_ns: int, count: int) -> dict[str, Any]:
    return {
        "role": role,
        "begin_ns": begin_ns,
        "end_ns": end_ns,
        "count": count,
        "client_cpu_us_per_message": 5.0,
        "latency_us": {"p50": 1.0},
        "error": "",
        "is_clean": True,
    }


def test_through_is_timed_from_the_first_send_to_the_last_completion():
    """Waiting for the sender is not the receiver's time, and copies are not messages."""
    results = [
        result_of("receive", 0, 1_500_000_000, 100),
        result_of("receive", 0, 1_000_000_000, 100),
        result_of("send", 500_000_000, 900_000_000, 100),
    ]
    figures = row_of("", broker_cpu_s=0.001, results=results).figures
    assert (100.0, 10.0) == (figures["messages_per_s"], figures["broker_cpu_us"])
    assert (5.0, 10.0) == (figures["send_client_cpu_us"], figures["receive_client_cpu_us"])


def test_a_receiver_alone_reports_no_end_to_end_latency():
    """How long messages lay in the queue is nobody's latency."""
    figures = row_of("", 0.0, [result_of("receive", 0, 1, 1)]).figures
    assert not [name for name in figures if name.startswith("end_to_end")]
