"""Thirty tests of the application. They run at the same time, each in a namespace of its own, and none sleeps.

pip install pytest-peeklock pytest-asyncio azure-servicebus; pytest examples/order_processing
"""

import asyncio
import multiprocessing
from datetime import timedelta

import pytest
from azure.servicebus import NEXT_AVAILABLE_SESSION
from azure.servicebus.exceptions import ServiceBusError
from order_processing import pack_shipments, place_order, remind

from pytest_peeklock import condition, settled

ORDER = {"body": {"id": "7", "amount": 20}, "message_id": "7"}
FORKED = multiprocessing.get_context("fork")
BILLING = "paid-orders/subscriptions/billing"


# --- a crash in the middle of a settlement ---------------------------------------------------------


async def pays_once(peeklock, running, bank, fault):
    """Processes an order while the fault is there. The money is taken once, and one copy is passed on."""
    with fault as rule:
        peeklock.send("orders", ORDER)
        async with running():
            await peeklock.aio.wait_until_settled("orders")
    assert rule.hits == 1
    assert bank.taken == [("7", 20)]
    assert len(peeklock.messages(BILLING)) == 1


async def test_the_connection_breaks_before_the_order_is_completed(peeklock, running, bank):
    """The broker never saw it, so the order comes again."""
    fault = peeklock.fault("settle", "drop_connection", entity="orders", first=1)
    await pays_once(peeklock, running, bank, fault)


async def test_the_connection_breaks_after_the_order_is_completed(peeklock, running, bank):
    """The application does not learn that it was, but the order does not come again."""
    fault = peeklock.fault("settle", "drop_connection", entity="orders", first=1, when="after")
    await pays_once(peeklock, running, bank, fault)


async def test_the_connection_breaks_while_the_order_is_passed_on(peeklock, running, bank):
    """The broker has it, but the application does not know. Its second attempt is dropped as a duplicate."""
    fault = peeklock.fault("send", "drop_connection", entity="paid-orders", first=1, when="after")
    await pays_once(peeklock, running, bank, fault)


def test_the_whole_application_crashes(peeklock, running, bank):
    """It is killed while it pays, so its connections end without a word. The next one that starts gets the order at
    once."""

    async def hang():
        await asyncio.Event().wait()

    async def process_orders():
        async with running():
            await peeklock.aio.wait_until_settled("orders")

    bank.meanwhile = hang
    peeklock.send("orders", ORDER)
    application = FORKED.Process(target=lambda: asyncio.run(process_orders()))
    application.start()
    peeklock.wait_for("orders", state="locked")
    application.kill()
    application.join()
    bank.meanwhile = None
    asyncio.run(process_orders())
    assert bank.taken == [("7", 20)]


# --- retries, and the dead-letter queue ------------------------------------------------------------


async def test_an_order_is_paid_and_passed_on(peeklock, running, bank):
    peeklock.send("orders", ORDER)
    async with running():
        (paid,) = await peeklock.aio.wait_for(BILLING)
        await peeklock.aio.wait_until_settled("orders")
    assert (paid["message_id"], paid["subject"]) == ("7", "paid")
    assert bank.taken == [("7", 20)]


async def test_what_is_not_json_becomes_a_dead_letter(peeklock, running, bank):
    peeklock.send("orders", "one book, please")
    async with running():
        await peeklock.aio.wait_for(
            "orders", state="dead_lettered", filter="reason = 'InvalidOrder'"
        )
    assert bank.taken == []


async def test_an_order_without_an_amount_becomes_a_dead_letter(peeklock, running):
    peeklock.send("orders", {"body": {"id": "7"}})
    async with running():
        (dead,) = await peeklock.aio.wait_for("orders", state="dead_lettered")
    assert "amount" in dead["dead_letter"]["description"]


async def test_a_payment_that_fails_once_is_tried_again(peeklock, running, bank):
    bank.failures = 1
    peeklock.send("orders", ORDER)
    async with running():
        await peeklock.aio.wait_for(BILLING)
    assert bank.taken == [("7", 20)]


async def test_a_payment_that_always_fails_ends_in_the_dead_letter_queue(peeklock, running, bank):
    bank.failures = 3
    peeklock.send("orders", ORDER)
    async with running():
        (dead,) = await peeklock.aio.wait_for("orders", state="dead_lettered")
    assert dead["dead_letter"]["reason"] == "MaxDeliveryCountExceeded"
    assert dead["delivery_count"] == 3
    assert (bank.failures, bank.taken) == (0, [])


async def test_dead_letters_are_paid_when_the_bank_is_back(peeklock, running, bank):
    bank.failures = 3
    peeklock.send("orders", ORDER)
    async with running():
        await peeklock.aio.wait_for("orders", state="dead_lettered")
        peeklock.resubmit_messages("orders")
        await peeklock.aio.wait_until(settled("orders"), condition(BILLING, equals=1))
    assert bank.taken == [("7", 20)]


async def test_a_bad_order_does_not_stop_the_others(peeklock, running, bank):
    others = [{"body": {"id": str(number), "amount": 1}} for number in range(5)]
    peeklock.send("orders", others[0], "bad", *others[1:])
    async with running():
        await peeklock.aio.wait_until(
            condition(BILLING, equals=5), condition("orders", state="dead_lettered", equals=1)
        )
    assert [order_id for order_id, _ in bank.taken] == ["0", "1", "2", "3", "4"]


# --- a lost lock -----------------------------------------------------------------------------------


async def test_a_payment_that_takes_too_long_loses_the_lock(peeklock, running, bank):
    """The lock lasts 30 seconds. The order comes again, and the money is taken once."""

    async def half_a_minute_passes():
        peeklock.advance(seconds=31)

    bank.meanwhile = half_a_minute_passes
    peeklock.send("orders", ORDER)
    async with running() as processor:
        await peeklock.aio.wait_until_settled("orders")
    assert processor.lost_locks == 1
    assert bank.taken == [("7", 20)]


async def test_a_payment_that_takes_nearly_too_long_keeps_the_lock(peeklock, running, bank):
    async def nearly_half_a_minute_passes():
        peeklock.advance(seconds=29)

    bank.meanwhile = nearly_half_a_minute_passes
    with peeklock.frozen_clock():
        peeklock.send("orders", ORDER)
        async with running() as processor:
            await peeklock.aio.wait_until_settled("orders")
    assert processor.lost_locks == 0


async def test_a_lock_that_is_lost_at_the_last_moment(peeklock, running, bank):
    with peeklock.fault("settle", "lose_lock", entity="orders", first=1) as fault:
        peeklock.send("orders", ORDER)
        async with running() as processor:
            await peeklock.aio.wait_until_settled("orders")
    assert (fault.hits, processor.lost_locks) == (1, 1)
    assert bank.taken == [("7", 20)]


async def test_a_lock_that_expires_now(peeklock, running, bank):
    async def expire():
        peeklock.expire_locks("orders")

    bank.meanwhile = expire
    peeklock.send("orders", ORDER)
    async with running() as processor:
        await peeklock.aio.wait_for(BILLING)
        await peeklock.aio.wait_until_settled("orders")
    assert processor.lost_locks == 1


async def test_a_billing_copy_is_sent_once_although_the_lock_was_lost(peeklock, running):
    """The topic drops the second one by its message id."""
    with peeklock.fault("settle", "lose_lock", entity="orders", first=2):
        peeklock.send("orders", ORDER)
        async with running():
            await peeklock.aio.wait_until_settled("orders")
    assert len(peeklock.messages(BILLING)) == 1


# --- throttling ------------------------------------------------------------------------------------


async def test_a_throttled_order_is_sent_after_a_while(peeklock, connect):
    """The SDK backs off twice. The caller does not notice."""
    with peeklock.fault("send", "server_busy", entity="orders", first=2) as fault:
        async with connect() as client:
            await place_order(client, {"id": "7", "amount": 20})
    assert (fault.hits, fault.matched) == (2, 3)
    assert peeklock.counts("orders")["active"] == 1


async def test_throttling_that_does_not_end_reaches_the_caller(peeklock, connect):
    with peeklock.fault("send", "server_busy", entity="orders") as fault:
        async with connect(retry_total=1) as client:
            with pytest.raises(ServiceBusError):
                await place_order(client, {"id": "7", "amount": 20})
    assert fault.hits == 2
    assert peeklock.counts("orders")["active"] == 0


async def test_a_throttled_topic_does_not_take_the_money_twice(peeklock, running, bank):
    with peeklock.fault("send", "server_busy", entity="paid-orders", first=2):
        peeklock.send("orders", ORDER)
        async with running():
            await peeklock.aio.wait_for(BILLING)
    assert bank.taken == [("7", 20)]


async def test_a_slow_broker_is_waited_for(peeklock, connect):
    with peeklock.fault("send", "delay", entity="orders", seconds=0.1) as fault:
        async with connect() as client:
            await place_order(client, {"id": "7", "amount": 20})
    assert fault.hits == 1
    assert peeklock.counts("orders")["active"] == 1


# --- sessions --------------------------------------------------------------------------------------


def parcels(customer, *names):
    return [{"body": name, "session_id": customer} for name in names]


async def test_the_parcels_of_a_customer_are_packed_in_order(peeklock, connect):
    peeklock.send("shipments", *parcels("ann", "book", "pen", "lamp"))
    async with connect() as client:
        assert await pack_shipments(client, 3) == ["book", "pen", "lamp"]
    await peeklock.aio.wait_until_settled("shipments")


async def test_another_packer_takes_over(peeklock, connect):
    """It knows from the state of the session what was packed."""
    peeklock.send("shipments", *parcels("ann", "book", "pen"))
    async with connect() as client:
        assert await pack_shipments(client, 1) == ["book"]
        await peeklock.aio.wait_until_unlocked("shipments")
        assert await pack_shipments(client, 1) == ["book", "pen"]


async def test_two_packers_have_different_customers(peeklock, connect):
    peeklock.send("shipments", *parcels("ann", "book"), *parcels("bob", "pen"))
    async with connect() as client:
        packed = await asyncio.gather(pack_shipments(client, 1), pack_shipments(client, 1))
    assert sorted(packed) == [["book"], ["pen"]]


async def test_a_packer_that_falls_asleep_loses_the_customer(peeklock, connect):
    """After half a minute another packer has the session, and the first one can no longer settle."""
    peeklock.send("shipments", *parcels("ann", "book"))
    async with connect() as client:
        sleeper = client.get_queue_receiver(
            "shipments", session_id=NEXT_AVAILABLE_SESSION, prefetch_count=1
        )
        async with sleeper:
            (message,) = await sleeper.receive_messages(max_wait_time=5)
            peeklock.advance(seconds=32)
            assert await pack_shipments(client, 1) == ["book"]
            with pytest.raises(ServiceBusError):
                await sleeper.complete_message(message)
    await peeklock.aio.wait_until_settled("shipments")


# --- schedules -------------------------------------------------------------------------------------


async def test_a_reminder_comes_after_a_week(peeklock, connect):
    async with connect() as client:
        await remind(client, "7", peeklock.now())
    peeklock.advance(days=7)
    (reminder,) = await peeklock.aio.wait_for("reminders", state="active")
    assert reminder["body"] == "7"


async def test_a_reminder_does_not_come_before(peeklock, connect):
    async with connect() as client:
        await remind(client, "7", peeklock.now())
    peeklock.advance(days=6, hours=23)
    assert peeklock.counts("reminders")["scheduled"] == 1
    assert peeklock.messages("reminders", state="active") == []


async def test_a_cancelled_reminder_never_comes(peeklock, connect):
    async with connect() as client:
        number = await remind(client, "7", peeklock.now())
        async with client.get_queue_sender("reminders") as sender:
            await sender.cancel_scheduled_messages(number)
    peeklock.advance(days=8)
    assert peeklock.messages("reminders") == []


# --- duplicates ------------------------------------------------------------------------------------


async def test_an_order_that_is_placed_twice_is_one(peeklock, connect):
    async with connect() as client:
        await asyncio.gather(*(place_order(client, {"id": "7", "amount": 20}) for _ in range(2)))
    assert [one["message_id"] for one in peeklock.messages("orders")] == ["7"]


async def test_an_order_of_the_same_number_after_ten_minutes_is_another(peeklock, connect):
    peeklock.send("orders", ORDER)
    peeklock.advance(timedelta(minutes=10, seconds=1))
    async with connect() as client:
        await place_order(client, {"id": "7", "amount": 20})
    assert len(peeklock.messages("orders")) == 2


async def test_an_order_that_is_delivered_twice_is_paid_once(peeklock, running, bank):
    with peeklock.fault("deliver", "deliver_twice", entity="orders", first=1) as fault:
        peeklock.send("orders", ORDER)
        async with running():
            await peeklock.aio.wait_until(settled("orders"), condition(BILLING, at_least=1))
    assert fault.hits == 1
    assert bank.taken == [("7", 20)]
