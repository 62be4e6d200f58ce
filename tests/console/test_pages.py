"""Every page of the console and every action, live, with traffic of the stock SDK."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusReceiveMode
from playwright.sync_api import expect

from protocol.faults.fault_kinds import KINDS

PAGES = {
    "overview": "#/overview",
    "queue": "#/entity/orders",
    "dead letters": "#/entity/orders?sub_queue=dead_letter",
    "topic": "#/entity/events",
    "rules": "#/entity/events%2Fsubscriptions%2Fred?tab=rules",
    "properties": "#/entity/orders?tab=properties",
    "message": "#/message/orders/main/1",
    "send": "#/send",
    "sessions": "#/sessions",
    "connections": "#/connections",
    "history": "#/history",
    "time": "#/time",
    "faults": "#/faults",
    "connect": "#/connect",
}


def send(api, entity: str, *messages: dict[str, Any]) -> list[int]:
    numbers: list[int] = api.post("/messages", entity=entity, messages=list(messages))[
        "sequence_numbers"
    ]
    return numbers


def dead_letters(api, entity: str = "orders") -> list[int]:
    """The numbers of the dead letters of an entity. Numbers are never used again, not even after a reset."""
    found = api.get("/messages", entity=entity, sub_queue="dead_letter", body="none")["messages"]
    return [one["sequence_number"] for one in found]


# --- all pages -----------------------------------------------------------------------------------


@pytest.fixture
def some_content(api):
    """A message in most places, so that pages have something to show."""
    api.post("/reset")
    first, second = send(
        api,
        "orders",
        {"body": {"id": 1}, "message_id": "first", "application_properties": {"color": "red"}},
        {"body": "second", "subject": "second"},
    )
    api.post(
        "/messages/dead-letter",
        entity="orders",
        sequence_numbers=[second],
        reason="Bad",
        description="Very.",
    )
    send(api, "carts", {"body": "cart", "session_id": "s1"})
    send(api, "events", {"body": "event", "application_properties": {"color": "red"}})
    return first


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_page_has_a_barrier(new_page, broker, some_content, scheme):
    """axe finds nothing wrong, in both colour schemes, and every page has one main heading."""
    console = new_page(broker.http_port, color_scheme=scheme)
    found = {}
    for name, where in PAGES.items():
        console.open(where.replace("main/1", f"main/{some_content}"))
        expect(console.page.locator("main h1")).to_have_count(1)
        wrong = console.violations()
        if wrong:
            found[name] = wrong
    assert {} == found


@pytest.mark.parametrize("width", [360, 3840])
def test_pages_fit_narrow_and_wide_screens(new_page, broker, some_content, width):
    """At 360 pixels nothing but tables has to be scrolled sideways. At 4K text is larger."""
    console = new_page(broker.http_port, viewport={"width": width, "height": 800})
    wider = {}
    for name, where in PAGES.items():
        console.open(where.replace("main/1", f"main/{some_content}"))
        expect(console.page.locator("main h1")).to_have_count(1)
        if console.overflow > 0:
            wider[name] = console.overflow
    assert {} == wider
    size = console.page.evaluate("parseFloat(getComputedStyle(document.body).fontSize)")
    assert (size >= 14) if width == 360 else (size > 20)


def test_dark_and_light_follow_the_system_unless_the_viewer_chooses(new_page, broker):
    console = new_page(broker.http_port, color_scheme="dark").open()

    def ground() -> int:
        """How bright the background is."""
        colour = console.page.evaluate("getComputedStyle(document.body).backgroundColor")
        return sum(map(int, re.findall(r"\d+", colour)[:3]))

    assert ground() < 150
    console.button("Theme: as the system; change to light").click()
    assert ground() > 600
    console.page.reload()
    console.open()
    assert ground() > 600


def test_every_page_is_reached_with_the_keyboard(console, some_content):
    """Tab goes through the navigation; in a table, arrow keys choose a row and Enter opens it."""
    console.open()
    expect(console.row("orders")).to_be_visible()
    press = console.page.keyboard.press
    press("Tab")
    assert "Skip to the content" == console.page.evaluate("document.activeElement.textContent")
    names = []
    for _ in range(14):
        press("Tab")
        names.append(console.page.evaluate("document.activeElement.textContent.trim()"))
    assert {"Send", "Sessions", "History", "Time", "Faults", "Connect"} <= set(names)
    console.page.locator("main").focus()
    press("/")
    assert console.page.evaluate("document.activeElement.type") == "search"
    console.page.keyboard.type("orders")
    console.page.locator(".table").focus()
    press("ArrowDown")
    press("Enter")
    expect(console.page.get_by_role("heading", name="orders", exact=True)).to_be_visible()


def test_times_are_in_the_viewers_zone_with_utc_at_hand(console, api):
    send(api, "orders", {"body": "a", "message_id": "a"})
    enqueued = datetime.fromisoformat(
        api.get("/messages", entity="orders")["messages"][0]["enqueued_at"]
    )
    console.open("#/entity/orders")
    time = console.page.locator("td.moment time").first
    berlin = enqueued + timedelta(hours=1 if enqueued.month in {11, 12, 1, 2} else 2)
    expect(time).to_have_text(f"{berlin:%H:%M:%S}")
    expect(time).to_have_attribute("title", re.compile(f"{enqueued:%Y-%m-%d %H:%M:%S} UTC"))
    console.button("UTC").click()
    expect(time).to_have_text(f"{enqueued:%H:%M:%S} UTC")


# --- overview ------------------------------------------------------------------------------------


def test_the_overview_follows_what_clients_do(console, sdk):
    """Counts, rates and charts change without a reload."""
    console.open()
    expect(console.row("orders").locator("td").nth(1)).to_have_text("0")
    with sdk.get_queue_sender("orders") as sender:
        sender.send_messages([ServiceBusMessage(str(number)) for number in range(120)])
    expect(console.row("orders").locator("td").nth(1)).to_have_text("120")
    expect(console.row("orders").locator("svg.chart")).to_be_visible()
    with sdk.get_queue_receiver(
        "orders", receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE
    ) as receiver:
        while receiver.receive_messages(120, max_wait_time=1):
            pass
    expect(console.row("orders").locator("td").nth(1)).to_have_text("0")


def test_entities_are_searched_sorted_and_chosen(console, api):
    send(api, "orders/eu", {"body": "a"})
    console.open()
    expect(console.rows).to_have_count(8)
    names = console.page.locator("td.name")
    assert ["carts", "events", "events / audit", "events / red"] == [
        one.split("\n")[0] for one in names.all_inner_texts()[:4]
    ]
    console.page.get_by_role("searchbox").fill("EVENTS")
    expect(console.rows).to_have_count(3)
    console.page.get_by_role("searchbox").fill("nothing like this")
    expect(console.text("No entity matches")).to_be_visible()
    console.page.get_by_role("searchbox").fill("")
    console.button("Queues").click()
    expect(console.rows).to_have_count(5)
    console.button("With messages").click()
    expect(console.rows).to_have_count(1)
    console.button("All", exact=True).click()
    console.button("Active").click()
    expect(names.first).to_contain_text("orders/eu")


def test_alerts_say_what_needs_a_look(console, api):
    console.open()
    (number,) = send(api, "orders", {"body": "a"})
    api.post("/messages/dead-letter", entity="orders", sequence_numbers=[number], reason="Bad")
    console.link(re.compile(r"orders has \d+ new dead letters?, 1 in all\.")).click()
    expect(console.row(dead_letters(api)[0])).to_contain_text("Bad")


def test_another_namespace_is_chosen(console):
    console.open()
    expect(console.row("orders")).to_be_visible()
    console.field("Namespace").select_option("team-b")
    expect(console.row("theirs")).to_be_visible()
    expect(console.row("orders")).to_have_count(0)
    console.row("theirs").get_by_role("link").click()
    expect(console.page.get_by_role("heading", name="theirs")).to_be_visible()
    assert "/~team-b/" in console.page.url


# --- an entity and its messages ------------------------------------------------------------------


def test_messages_are_shown_by_state(console, api, sdk):
    sent = send(
        api,
        "orders",
        {"body": "a"},
        {"body": "b"},
        {"body": "c", "scheduled_for": "2090-01-01T00:00:00Z"},
        {"body": "d"},
    )
    api.post("/messages/dead-letter", entity="orders", sequence_numbers=[sent[3]], reason="Bad")
    with sdk.get_queue_receiver("orders") as receiver:
        receiver.receive_messages(1, max_wait_time=10)
        console.open("#/entity/orders")
        expect(console.rows).to_have_count(3)
        for state, number in (("Active", sent[1]), ("Locked", sent[0]), ("Scheduled", sent[2])):
            console.button(f"{state} 1").click()
            expect(console.rows).to_have_count(1)
            expect(console.row(number)).to_be_visible()
        console.button("Locked 1").click()
        expect(console.row(sent[0])).to_contain_text("SBReceiver")
        console.button("Dead letters 1").click()
        expect(console.rows).to_contain_text("Bad")
        console.button("Deferred 0").click()
        expect(console.text("No message matches")).to_be_visible()


def test_messages_are_filtered_by_text_expression_and_session(console, api):
    red, _ = send(
        api,
        "orders",
        {"body": "apple", "application_properties": {"color": "red"}},
        {"body": "plum", "application_properties": {"color": "blue"}},
    )
    console.open("#/entity/orders")
    expect(console.rows).to_have_count(2)
    search = console.field("Filter messages")
    search.fill("PLUM")
    search.press("Enter")
    expect(console.rows).to_have_count(1)
    console.field("Filter by").select_option("SQL")
    search.fill("color = 'red'")
    search.press("Enter")
    expect(console.row(red)).to_be_visible()
    expect(console.rows).to_have_count(1)
    with console.refused(400):
        search.fill("color =")
        search.press("Enter")
        expect(console.page.get_by_role("alert")).to_contain_text("line 1, column 8")
    send(api, "carts", {"body": "a", "session_id": "s1"}, {"body": "b", "session_id": "s2"})
    console.open("#/entity/carts?session=s2")
    expect(console.rows).to_have_count(1)


def test_many_messages_are_resubmitted_dead_lettered_released_and_deleted(console, api):
    """Only what is lost is asked about."""
    numbers = send(api, "orders", *({"body": str(number)} for number in range(5)))
    console.open("#/entity/orders")
    console.select(*numbers[:3])
    expect(console.text("3 messages selected")).to_be_visible()
    console.button("Dead-letter…").click()
    console.field("Reason").fill("Checked")
    console.button("Dead-letter", exact=True).click()
    expect(console.notices).to_contain_text("3 messages dead-lettered.")
    expect(console.rows).to_have_count(2)
    console.button("Dead letters 3").click()
    first, second, third = dead_letters(api)
    expect(console.row(first)).to_contain_text("Checked")
    console.select(first)
    console.button("Resubmit", exact=True).click()
    expect(console.notices).to_contain_text("1 message resubmitted.")
    expect(console.rows).to_have_count(2)
    console.select(second)
    console.button("Resubmit to…").click()
    console.field("Queue or topic").fill("orders/eu")
    console.page.get_by_role("dialog").get_by_role("button", name="Resubmit").click()
    expect(console.notices).to_contain_text("resubmitted to orders/eu.")
    console.select(third)
    console.button("Delete…").click()
    expect(console.page.get_by_role("dialog")).to_contain_text("This cannot be undone.")
    console.button("Delete 1 message").click()
    expect(console.text("No dead letters", exact=True)).to_be_visible()
    assert 1 == api.get("/entity", entity="orders/eu")["counts"]["active"]
    assert 3 == api.get("/entity", entity="orders")["counts"]["active"]


def test_a_question_can_be_cancelled(console, api):
    send(api, "orders", {"body": "a"})
    console.open("#/entity/orders")
    console.button("Purge…").click()
    expect(console.page.get_by_role("dialog")).to_be_visible()
    console.page.keyboard.press("Escape")
    expect(console.page.get_by_role("dialog")).to_have_count(0)
    console.button("Purge…").click()
    console.button("Cancel").click()
    assert 1 == api.get("/entity", entity="orders")["counts"]["active"]


def test_an_entity_is_purged(console, api):
    send(api, "orders", {"body": "a"}, {"body": "b"})
    console.open("#/entity/orders")
    expect(console.rows).to_have_count(2)
    console.button("Purge…").click()
    console.button("Delete all messages").click()
    expect(console.notices).to_contain_text("2 messages deleted from orders.")
    expect(console.link("Send one from here")).to_be_visible()


def test_all_dead_letters_are_resubmitted_at_once(console, api):
    numbers = send(api, "orders", *({"body": str(number)} for number in range(4)))
    api.post("/messages/dead-letter", entity="orders", sequence_numbers=numbers, reason="Bad")
    console.open("#/entity/orders?sub_queue=dead_letter")
    console.button("Resubmit all").click()
    expect(console.notices).to_contain_text("4 messages resubmitted.")
    assert 4 == api.get("/entity", entity="orders")["counts"]["active"]


def test_a_queue_with_ten_thousand_messages_is_scrolled_to_its_end(console, api):
    """Few rows are drawn at a time, and more are loaded when they are needed."""
    for start in range(0, 10_000, 5_000):
        send(
            api,
            "many",
            *({"body": "x", "message_id": f"m{start + number}"} for number in range(5_000)),
        )
    console.open("#/entity/many")
    expect(console.button("All 10,000")).to_be_visible()
    expect(console.row(1)).to_be_visible()
    assert console.rows.count() < 100
    # To the end again and again, as somebody who drags the scroll bar; each time the next page is loaded.
    console.page.evaluate(
        """async () => {
            const table = document.querySelector(".table");
            while (!document.querySelector('tr[data-row="10000"]')) {
                table.scrollTop = table.scrollHeight;
                await new Promise(requestAnimationFrame);
            }
        }"""
    )
    expect(console.row(10_000)).to_contain_text("m9999")
    assert console.rows.count() < 100
    expect(console.text("10,000 messages")).to_be_visible()
    console.page.locator(".table").evaluate("table => { table.scrollTop = 0 }")
    expect(console.row(1)).to_be_visible()


def test_properties_have_the_names_of_the_sdks(console):
    console.open("#/entity/orders")
    console.page.get_by_role("tab", name="Properties").click()
    row = console.page.get_by_role("row", name="max_delivery_count")
    expect(row).to_contain_text("3")
    expect(row).to_contain_text("set")
    expect(console.page.get_by_role("row", name="lock_duration")).to_contain_text("1 min")
    console.button(".NET").click()
    expect(console.page.get_by_role("row", name="MaxDeliveryCount")).to_contain_text("3")


def test_rules_are_tried_with_a_message(console, api):
    (number,) = send(api, "orders", {"body": "a", "application_properties": {"color": "blue"}})
    console.open("#/entity/events%2Fsubscriptions%2Fred")
    console.page.get_by_role("tab", name="Rules").click()
    rules = console.page.get_by_role("region", name="Rules")
    console.button("Try", exact=True).click()
    expect(rules).to_contain_text("The subscription would get 2 copies.")
    expect(rules.get_by_text("matches")).to_have_count(2)
    expect(rules.get_by_role("row", name=re.compile("^tag .* red"))).to_be_visible()
    console.button("One in the broker").click()
    console.input("Entity").fill("orders")
    console.field("Sequence number").fill(str(number))
    console.field("A rule to try beside them: filter").fill("color = 'blue'")
    console.button("Try", exact=True).click()
    expect(rules).to_contain_text("The subscription would get 1 copy.")
    expect(rules).to_contain_text("Your draft")
    with console.refused(400):
        console.field("A rule to try beside them: filter").fill("color =")
        console.button("Try", exact=True).click()
        expect(console.page.get_by_role("alert")).to_contain_text("column 8")


# --- one message ---------------------------------------------------------------------------------


def test_a_message_shows_its_body_and_its_properties_with_their_types(console, sdk, api):
    with sdk.get_queue_sender("orders") as sender:
        sender.send_messages(
            ServiceBusMessage(
                '{"id": 12345678901234567890, "list": [1, {}]}',
                message_id="m-1",
                content_type="application/json",
                application_properties={"text": "red", "count": 7, "share": 0.5, "on": True},
            )
        )
    (sent,) = api.get("/messages", entity="orders")["messages"]
    console.open(f"#/message/orders/main/{sent['sequence_number']}")
    body = console.field("Content of the body")
    expect(body).to_have_text(
        '{\n  "id": 12345678901234567890,\n  "list": [\n    1,\n    {}\n  ]\n}'
    )
    for name, value, kind in (
        ("text", "red", "string"),
        ("count", "7", "int"),
        ("share", "0.5", "double"),
        ("on", "true", "boolean"),
    ):
        expect(console.page.get_by_role("row", name=f"{name} {value} {kind}")).to_be_visible()
    expect(console.page.get_by_role("row", name="message_id m-1 string")).to_be_visible()
    console.button("Text", exact=True).click()
    expect(body).to_have_text('{"id": 12345678901234567890, "list": [1, {}]}')
    console.button("Hex", exact=True).click()
    expect(body).to_contain_text(
        '00000000  7b 22 69 64 22 3a 20 31 32 33 34 35 36 37 38 39  {"id": 123456789'
    )


def test_xml_is_indented(console, api):
    (number,) = send(
        api,
        "orders",
        {"body": "<a><b x='1'>text</b><c/><d></d></a>", "content_type": "application/xml"},
    )
    console.open(f"#/message/orders/main/{number}")
    expect(console.field("Content of the body")).to_have_text(
        "<a>\n  <b x='1'>text</b>\n  <c/>\n  <d></d>\n</a>"
    )


def test_one_message_is_dead_lettered_and_resubmitted(console, api):
    (number,) = send(api, "orders", {"body": "a", "message_id": "m-1"})
    console.open(f"#/message/orders/main/{number}")
    console.button("Dead-letter…").click()
    console.field("Reason").fill("Bad")
    console.field("Description").fill("It was too late.")
    console.button("Dead-letter", exact=True).click()
    expect(console.notices).to_contain_text("The message is dead-lettered.")
    (number,) = dead_letters(api)
    console.open(f"#/message/orders/dead_letter/{number}")
    why = console.page.get_by_role("region", name="Why it is a dead letter")
    expect(why).to_contain_text("Bad")
    expect(why).to_contain_text("It was too late.")
    console.button("Resubmit").click()
    expect(console.notices).to_contain_text("1 message resubmitted to orders.")
    expect(console.text("No dead letters", exact=True)).to_be_visible()


def test_a_lock_is_expired_and_a_message_that_is_gone_says_so(console, api, sdk):
    (number,) = send(api, "orders", {"body": "a"})
    with sdk.get_queue_receiver("orders") as receiver:
        receiver.receive_messages(1, max_wait_time=10)
        console.open(f"#/message/orders/main/{number}")
        expect(console.text("lock holder")).to_be_visible()
        console.button("Expire lock").click()
        expect(console.page.get_by_role("row", name="delivery_count")).to_contain_text("1")
    api.post("/purge", entity="orders")
    expect(console.text("The message is not in this queue any more.")).to_be_visible()


# --- send ----------------------------------------------------------------------------------------


def test_a_message_is_sent_with_everything(console, api):
    console.open("#/send?entity=orders")
    console.input("Body").fill('{"id": 7}')
    console.field("The body is").select_option("json")
    console.field("Message id").fill("m-7")
    console.field("Subject").fill("created")
    console.field("Correlation id").fill("c-7")
    console.input("Session id").fill("s-7")
    console.field("Time to live", exact=True).fill("2")
    console.field("Scheduled for").fill("2090-01-01T12:00:00")
    console.button("Add a property").click()
    console.field("Name of the property").fill("size")
    console.field("Type of the property").select_option("number")
    console.field("Value of the property").fill("42")
    console.button("Send", exact=True).click()
    expect(console.page.locator("#sent")).to_contain_text(
        "1 message sent to orders. It has the number"
    )
    (sent,) = api.get("/messages", entity="orders")["messages"]
    expected = {
        "body": {"id": 7},
        "message_id": "m-7",
        "subject": "created",
        "correlation_id": "c-7",
        "session_id": "s-7",
        "content_type": "application/json",
        "time_to_live_ms": 120_000,
        "scheduled_for": "2090-01-01T11:00:00.000Z",
        "state": "scheduled",
        "application_properties": {"size": 42},
    }
    assert expected == {name: sent[name] for name in expected}


def test_many_messages_are_sent_at_once(console, api):
    console.open("#/send?entity=orders")
    console.input("Body").fill("order {n}")
    console.field("Message id").fill("m-{n}")
    console.field("How many").fill("300")
    console.button("Send", exact=True).click()
    expect(console.page.locator("#sent")).to_contain_text("300 messages sent to orders.")
    found = api.get("/messages", entity="orders", limit=1000)["messages"]
    assert {f"order {number}" for number in range(1, 301)} == {one["body"] for one in found}


def test_messages_are_sent_as_json(console, api):
    console.open("#/send?entity=orders")
    console.button("Edit as JSON").click()
    console.field("Messages as JSON").fill('[{"body": "a"}, {"body": "b", "subject": "two"}]')
    console.button("Send", exact=True).click()
    expect(console.page.locator("#sent")).to_contain_text("2 messages sent")
    console.field("Messages as JSON").fill("[{")
    console.button("Send", exact=True).click()
    expect(console.page.get_by_role("alert")).to_contain_text("not valid JSON")


def test_a_refused_send_is_told_as_a_sentence(console):
    console.open("#/send?entity=carts")
    console.input("Body").fill("x")
    with console.refused(400):
        console.button("Send", exact=True).click()
        expect(console.page.get_by_role("alert")).to_contain_text("session")


def test_a_template_is_kept_in_the_browser(console, api):
    console.open("#/send?entity=orders")
    console.input("Body").fill("from a template")
    console.field("Subject").fill("template")
    console.button("Save as template…").click()
    console.field("Name", exact=True).fill("Usual")
    console.button("Save", exact=True).click()
    console.page.reload()
    console.field("Use a template").select_option("Usual")
    expect(console.input("Body")).to_have_value("from a template")
    console.field("Delete a template").select_option("Usual")
    expect(console.field("Use a template")).to_have_count(0)


def test_an_earlier_message_is_sent_again(console, api):
    (number,) = send(
        api,
        "orders",
        {"body": "again", "subject": "s", "application_properties": {"color": "red", "size": 3}},
    )
    console.open(f"#/message/orders/main/{number}")
    console.link("Send a copy…").click()
    expect(console.input("Body")).to_have_value("again")
    console.button("Send", exact=True).click()
    expect(console.page.locator("#sent")).to_contain_text("1 message sent")
    first, second = api.get("/messages", entity="orders")["messages"]
    for name in ("body", "subject", "application_properties"):
        assert first[name] == second[name]


# --- sessions, connections, time, connect --------------------------------------------------------


def test_sessions_show_their_holders_and_states(console, api, sdk):
    send(api, "carts", {"body": "a", "session_id": "s1"}, {"body": "b", "session_id": "s2"})
    console.open("#/sessions")
    expect(console.row("s1")).to_contain_text("nobody")
    with sdk.get_queue_receiver("carts", session_id="s1") as receiver:
        expect(console.row("s1")).to_contain_text("SBReceiver")
        receiver.session.set_state(b"step 2")  # changes no count
        expect(console.row("s1")).to_contain_text("step 2")
        console.row("s1").get_by_role("button", name="Expire lock").click()
        expect(console.row("s1")).to_contain_text("nobody")
    console.row("s2").get_by_role("link").click()
    expect(console.rows).to_have_count(1)


def test_connections_show_links_credit_and_unsettled_messages(console, api, sdk):
    console.open("#/connections")
    expect(console.text("No client is connected")).to_be_visible()
    send(api, "orders", {"body": "a"})
    with sdk.get_queue_receiver("orders", prefetch_count=5) as receiver:
        receiver.receive_messages(1, max_wait_time=10)
        expect(console.rows).to_have_count(1)
        expect(console.rows.first).to_contain_text("SBReceiver")
        console.rows.first.get_by_role("link").click()
        links = console.page.get_by_role("region", name="Links", exact=True)
        expect(links).to_contain_text("orders")
        expect(links).to_contain_text("receiver")
    expect(console.text("This connection is closed")).to_be_visible()


def test_the_clock_is_moved_and_frozen(console, api):
    console.open("#/time")
    clock = console.page.get_by_role("region", name="Clock of sbemulatorns")
    clock.get_by_role("button", name="+1 h").click()
    expect(clock).to_contain_text("1 h ahead of the system clock")
    expect(console.page.locator("a.clock")).to_contain_text("1 h ahead")
    whole = console.page.get_by_role("region", name="Clock of the broker")
    whole.get_by_role("button", name="Freeze").click()
    expect(whole).to_contain_text("frozen")
    assert api.get("/clock")["is_frozen"]
    whole.get_by_role("button", name="Resume").click()
    expect(whole.get_by_role("button", name="Freeze")).to_be_visible()
    with console.refused(400):
        whole.get_by_label("Set to (your zone)").fill("2020-01-01T00:00:00")
        whole.get_by_role("button", name="Set").click()
        expect(console.notices).to_contain_text("clock")


def test_connect_names_this_very_broker(console, broker):
    """`test_connect_snippets.py` runs the snippets."""
    console.open("#/connect")
    string = console.page.locator("#connection-string").inner_text()
    assert f"localhost:{broker.http_port}" in string
    for language in (".NET", "Python", "JavaScript", "Java", "Go"):
        console.page.get_by_role("tab", name=language, exact=True).click()
        expect(console.field(f"{language} snippet")).to_contain_text(string)
    expect(console.page.get_by_role("row", name="AMQP port")).to_contain_text(str(broker.amqp_port))


def test_texts_are_copied(new_page, broker):
    console = new_page(broker.http_port, permissions=["clipboard-read", "clipboard-write"])
    console.open("#/connect")
    string = console.page.locator("#connection-string").inner_text()
    console.button("Copy").first.click()
    expect(console.button("Copied")).to_be_visible()
    assert string == console.page.evaluate("navigator.clipboard.readText()")


# --- history, faults, frames ---------------------------------------------------------------------


def test_history_is_recorded_and_followed(console, api, sdk):
    """What happens to messages shows as it happens, by entity or by message."""
    console.open("#/history")
    console.button("Record", exact=True).click()
    expect(console.button("Stop recording")).to_be_visible()
    with sdk.get_queue_sender("orders") as sender:
        sender.send_messages(ServiceBusMessage("a", message_id="followed"))
    expect(console.rows.filter(has_text="Sent")).to_contain_text("followed")
    with sdk.get_queue_receiver("orders") as receiver:
        receiver.complete_message(receiver.receive_messages(max_wait_time=10)[0])
    expect(console.rows.filter(has_text="Completed")).to_contain_text("followed")
    console.input("Message id").or_(console.page.get_by_role("searchbox", name="Message id")).fill(
        "nobody"
    )
    console.page.keyboard.press("Enter")
    expect(console.text("Nothing is recorded")).to_be_visible()
    api.request("PUT", "/history", {"recording": False})


def test_a_fault_is_made_counted_and_removed(console, api, sdk):
    console.open("#/faults")
    expect(console.text("No faults", exact=True)).to_be_visible()
    console.input("On the entity").fill("orders")
    console.input("Name").fill("busy")
    console.field("How often").select_option("the first n times")
    console.button("Add the fault").click()
    expect(console.row("busy")).to_contain_text("server busy")
    with sdk.get_queue_sender("orders") as sender:
        sender.send_messages(ServiceBusMessage("a"))  # the SDK tries it again
    expect(console.row("busy").locator("td").nth(4)).to_have_text("1")
    console.row("busy").get_by_role("button", name="Remove").click()
    expect(console.text("No faults", exact=True)).to_be_visible()
    with console.refused(400):
        console.field("When a client does").select_option("send")
        console.input("If the message fits (SQL)").fill("color =")
        console.button("Add the fault").click()
        expect(console.page.get_by_role("alert")).to_contain_text("column 8")


def test_only_faults_that_the_broker_has_can_be_chosen(console):
    console.open("#/faults")
    known = console.page.evaluate(
        "async () => (await import('/$peeklock/console/pages/faults.js')).OPERATIONS"
    )
    assert {one.value: {kind.value for kind in kinds} for one, kinds in KINDS.items()} == {
        one: set(kinds) for one, kinds in known.items()
    }


def test_frames_are_watched_live(console, api, sdk):
    send(api, "orders", {"body": "a"})
    with sdk.get_queue_receiver("orders") as receiver:
        receiver.peek_messages()
        console.open("#/connections")
        console.rows.first.get_by_role("link").click()
        console.button("Watch live").click()
        expect(console.button("Stop watching")).to_be_visible()
        frames = console.page.get_by_role("region", name="Frames")
        transfer = frames.get_by_text("transfer", exact=True).first
        for _ in range(50):  # the stream of frames may open after the first peek
            receiver.peek_messages()
            console.page.wait_for_timeout(100)
            if transfer.is_visible():
                break
        expect(transfer).to_be_visible()
