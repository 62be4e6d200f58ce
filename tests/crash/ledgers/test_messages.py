"""The ledger of messages: each broken promise is found, and a missing answer is never reported as a
loss."""

from __future__ import annotations

from tests.crash.ledgers.messages import Ledger, Link, Order
from tests.crash.ledgers.report import found_in

FIRST_RUN = Link(number=0, incarnation=0)
SECOND_RUN = Link(number=1, incarnation=1)
MESSAGE = ("sender", 0)
NEXT = ("sender", 1)


def ledger_with(*keys: tuple[str, int]) -> Ledger:
    ledger = Ledger()
    for key in keys:
        ledger.sending(key)
        ledger.accepted(key)
    return ledger


def complete(ledger: Ledger, key: tuple[str, int], number: int, link: Link) -> None:
    ledger.delivered(key, number, link)
    ledger.completing(key, link)
    ledger.completed(key)


def violations(ledger: Ledger) -> dict[str, int]:
    return found_in(ledger.audit())


def test_a_message_sent_delivered_and_completed_is_clean():
    """A message that is sent, delivered and completed breaks no promise."""
    ledger = ledger_with(MESSAGE)
    complete(ledger, MESSAGE, 1, FIRST_RUN)
    assert {} == violations(ledger)


def test_an_accepted_message_never_seen_is_lost():
    """Accepted means stored."""
    assert {"lost": 1} == violations(ledger_with(MESSAGE))


def test_a_message_seen_but_gone_without_completion_is_lost():
    """A message that was delivered once must not disappear."""
    ledger = ledger_with(MESSAGE)
    ledger.delivered(MESSAGE, 1, FIRST_RUN)
    assert {"lost": 1} == violations(ledger)


def test_a_completion_in_doubt_is_neither_lost_nor_done():
    """The broker may have done it before it died."""
    ledger = ledger_with(MESSAGE)
    ledger.delivered(MESSAGE, 1, FIRST_RUN)
    ledger.completing(MESSAGE, FIRST_RUN)
    assert {} == violations(ledger)


def test_a_redelivery_settles_the_doubt():
    """Once the message is seen again its earlier completion did not happen: it must end properly."""
    ledger = ledger_with(MESSAGE)
    ledger.delivered(MESSAGE, 1, FIRST_RUN)
    ledger.completing(MESSAGE, FIRST_RUN)
    ledger.delivered(MESSAGE, 1, SECOND_RUN)
    assert {"lost": 1} == violations(ledger)


def test_a_refused_completion_leaves_the_message_to_be_accounted_for():
    """The broker answered that it kept the message."""
    ledger = ledger_with(MESSAGE)
    ledger.delivered(MESSAGE, 1, FIRST_RUN)
    ledger.completing(MESSAGE, FIRST_RUN)
    ledger.completion_refused(MESSAGE)
    assert {"lost": 1} == violations(ledger)


def test_a_completed_message_seen_again_is_back():
    """A confirmed completion survives the end of the process."""
    ledger = ledger_with(MESSAGE)
    complete(ledger, MESSAGE, 1, FIRST_RUN)
    complete(ledger, MESSAGE, 1, SECOND_RUN)
    assert {"back": 1} == violations(ledger)


def test_a_late_report_from_an_older_run_is_not_back():
    """A delivery over a dead connection was made before the completion in the newer run."""
    ledger = ledger_with(MESSAGE)
    complete(ledger, MESSAGE, 1, SECOND_RUN)
    ledger.delivered(MESSAGE, 1, FIRST_RUN)
    assert {} == violations(ledger)


def test_a_send_in_doubt_may_be_stored_or_not():
    """Without an answer both are right."""
    ledger = Ledger()
    ledger.sending(MESSAGE)
    ledger.sending(NEXT)
    complete(ledger, NEXT, 1, FIRST_RUN)
    assert {} == violations(ledger)
    counts = ledger.audit().counts
    assert (2, 1) == (counts["sends in doubt"], counts["of these stored"])


def test_a_refused_message_must_not_appear():
    """No means no."""
    ledger = Ledger()
    ledger.sending(MESSAGE)
    ledger.refused(MESSAGE)
    ledger.delivered(MESSAGE, 1, FIRST_RUN)
    assert {"refused yet delivered": 1} == violations(ledger)


def test_a_message_that_was_not_sent_is_unknown():
    """The broker makes up nothing."""
    ledger = ledger_with()
    assert not ledger.delivered(MESSAGE, 1, FIRST_RUN)
    assert {"unknown": 1} == violations(ledger)


def test_a_number_given_to_two_messages_is_reused():
    """Not even across a restart, when the first message is long gone."""
    ledger = ledger_with(MESSAGE, NEXT)
    complete(ledger, MESSAGE, 1, FIRST_RUN)
    complete(ledger, NEXT, 1, SECOND_RUN)
    assert {"sequence number reused": 1} == violations(ledger)


def test_a_message_under_two_numbers_was_stored_twice():
    """A copy is not a redelivery."""
    ledger = ledger_with(MESSAGE)
    ledger.delivered(MESSAGE, 1, FIRST_RUN)
    complete(ledger, MESSAGE, 2, SECOND_RUN)
    assert {"stored twice": 1} == violations(ledger)


def test_a_first_delivery_behind_its_follower_is_out_of_order():
    """Both on one link, and over the runs of the broker, with a single receiver."""
    ledger = ledger_with(MESSAGE, NEXT)
    complete(ledger, NEXT, 2, FIRST_RUN)
    complete(ledger, MESSAGE, 1, SECOND_RUN)
    assert {"out of order": 1} == violations(ledger)


def test_redelivery_of_older_messages_after_a_restart_is_in_order():
    """What was locked when the broker died comes again, before anything newer."""
    ledger = ledger_with(MESSAGE, NEXT)
    ledger.delivered(MESSAGE, 1, FIRST_RUN)
    ledger.delivered(NEXT, 2, FIRST_RUN)
    complete(ledger, MESSAGE, 1, SECOND_RUN)
    complete(ledger, NEXT, 2, SECOND_RUN)
    assert {} == violations(ledger)


def test_numbers_must_rise_in_the_order_of_sending():
    """One sender's stored order is its send order."""
    ledger = ledger_with(MESSAGE, NEXT)
    complete(ledger, MESSAGE, 2, FIRST_RUN)
    complete(ledger, NEXT, 1, FIRST_RUN)
    assert {"stored out of order": 1} == violations(ledger)


def test_locks_given_back_excuse_the_order_on_other_links_of_that_run():
    """A lost connection returns its messages to the front while others are further on."""
    ledger = Ledger(Order.ON_LINKS)
    for key in (MESSAGE, NEXT):
        ledger.sending(key)
        ledger.accepted(key)
    complete(ledger, NEXT, 2, FIRST_RUN)
    ledger.disturbed(FIRST_RUN.incarnation)
    complete(ledger, MESSAGE, 1, FIRST_RUN)
    assert {} == violations(ledger)


def test_several_receivers_are_in_order_on_their_own_links():
    """Between them nothing is promised, on one link everything is."""
    ledger = Ledger(Order.ON_LINKS)
    for key in (MESSAGE, NEXT):
        ledger.sending(key)
        ledger.accepted(key)
    complete(ledger, NEXT, 2, FIRST_RUN)
    complete(ledger, MESSAGE, 1, FIRST_RUN)
    assert {"out of order": 1} == violations(ledger)


def test_receivers_that_give_back_can_still_tell_the_stored_order():
    """Delivered in any order, numbered in the order of sending."""
    ledger = Ledger(Order.STORED)
    for key in (MESSAGE, NEXT):
        ledger.sending(key)
        ledger.accepted(key)
    complete(ledger, NEXT, 1, FIRST_RUN)
    complete(ledger, MESSAGE, 2, FIRST_RUN)
    assert {"stored out of order": 1} == violations(ledger)


def test_where_no_order_is_promised_none_is_looked_for():
    """Neither of delivery nor of numbers."""
    ledger = Ledger(Order.NONE)
    for key in (MESSAGE, NEXT):
        ledger.sending(key)
        ledger.accepted(key)
    complete(ledger, NEXT, 1, FIRST_RUN)
    complete(ledger, MESSAGE, 2, FIRST_RUN)
    assert {} == violations(ledger)


def test_a_failed_delivery_without_a_lost_receiver_is_found():
    """The count rises when the connection of a receiver ends, once each time, and not otherwise."""
    ledger = ledger_with(MESSAGE)
    ledger.counted(MESSAGE, 0)
    ledger.receiver_lost()
    ledger.counted(MESSAGE, 1)
    ledger.counted(MESSAGE, 2)
    complete(ledger, MESSAGE, 1, FIRST_RUN)
    assert {"delivery count": 1} == violations(ledger)


def test_receivers_lost_before_a_message_was_sent_do_not_explain_its_count():
    """They cannot have had it."""
    ledger = ledger_with()
    ledger.receiver_lost()
    ledger.sending(MESSAGE)
    ledger.accepted(MESSAGE)
    ledger.counted(MESSAGE, 1)
    complete(ledger, MESSAGE, 1, FIRST_RUN)
    assert {"delivery count": 1} == violations(ledger)
