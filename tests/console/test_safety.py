"""What the console protects: hostile messages stay text, strict mode asks for a key, other sites get nothing."""

from __future__ import annotations

import base64

import pytest
from playwright.sync_api import expect

from protocol.identity import sas
from tests.support.server import BrokerProcess

SCRIPT = "<script>window.hacked = true</script><img src=x onerror='window.hacked = true'>"
CONTROL = "bell\x07 escape\x1b[31m null\x00 delete\x7f end"
BROKEN_UTF8 = b"caf\xe9 \xff\xfe\xc0\x80"
RIGHT_TO_LEFT = "invoice\u202egnp.exe"
MEGABYTE = 1024 * 1024
TEAM_KEY = {"rights": ["manage", "send", "listen"], "primary_key": "dGVhbQ=="}
READER_KEY = {"rights": ["listen"], "primary_key": "cmVhZGVy"}


def opened(console, api, **message):
    """Sends a message and opens it. Returns the element with its body."""
    (number,) = api.post("/messages", entity="hostile", messages=[message])["sequence_numbers"]
    console.open(f"#/message/hostile/main/{number}")
    return console.field("Content of the body")


def test_html_in_a_message_is_only_text(console, api):
    """In the body, in ids, in names and values of properties, and in the reason of a dead letter."""
    body = opened(
        console,
        api,
        body=SCRIPT,
        message_id=SCRIPT,
        subject=SCRIPT,
        content_type="text/html",
        application_properties={SCRIPT: SCRIPT},
    )
    console.button("Text", exact=True).click()
    expect(body).to_have_text(SCRIPT)
    expect(console.page.get_by_role("heading", level=1)).to_have_text(SCRIPT)
    console.open("#/entity/hostile")
    expect(console.rows.first).to_contain_text("<script>")
    api.post(
        "/messages/dead-letter", entity="hostile", state="active", reason=SCRIPT, description=SCRIPT
    )
    console.open("#/entity/hostile?sub_queue=dead_letter")
    expect(console.rows.first).to_contain_text("<script>")
    assert not console.page.evaluate("'hacked' in window")
    assert 0 == console.page.locator("main script, main img").count()


def test_an_inline_script_would_not_run(console):
    """Even if one came into the page."""
    console.open()
    console.page.evaluate(
        """() => {
            const script = document.createElement("script");
            try { script.textContent = "window.hacked = true"; document.body.append(script); } catch {}
        }"""
    )
    assert not console.page.evaluate("'hacked' in window")
    assert console.logged
    assert all(
        "Content Security Policy" in one or "TrustedScript" in one or "Trusted" in one
        for one in console.logged
    )
    console.logged.clear()


def test_control_characters_are_made_visible(console, api):
    body = opened(console, api, body=CONTROL, message_id=CONTROL)
    expect(body).to_contain_text("bell\u2407 escape\u241b[31m null\u2400 delete\u2421 end")
    console.open("#/entity/hostile")
    expect(console.rows.first).to_contain_text("null\u2400")


def test_text_cannot_change_the_order_of_what_is_shown(console, api):
    body = opened(console, api, body=RIGHT_TO_LEFT)
    expect(body).to_have_text("invoice\u27e8U+202E\u27e9gnp.exe")


def test_bytes_that_are_no_text_are_shown_as_hex(console, api):
    body = opened(
        console,
        api,
        body=base64.b64encode(BROKEN_UTF8).decode(),
        body_format="base64",
        content_type="application/json",
    )
    expect(body).to_contain_text("63 61 66 e9 20 ff fe c0 80")
    expect(console.text("not UTF-8")).to_be_visible()
    expect(console.button("JSON", exact=True)).to_have_count(0)


def test_json_that_is_broken_or_deep_is_shown_as_text(console, api):
    expect(opened(console, api, body='{"a": ', content_type="application/json")).to_have_text(
        '{"a":'
    )
    deep = "[" * 3_000 + "]" * 3_000
    expect(opened(console, api, body=deep, content_type="application/json")).to_contain_text("[")


def test_a_body_of_a_megabyte_is_shown_in_part_and_then_whole(console, api):
    body = opened(console, api, body="x" * (MEGABYTE - 10) + "the end")
    expect(console.text("The first 200,000 characters are shown.")).to_be_visible()
    assert 200_000 == body.evaluate("element => element.textContent.length")
    console.button("Show all").click()
    expect(body).to_contain_text("the end")
    console.button("Hex", exact=True).click()
    expect(body).to_contain_text("00000000  78 78")


def test_a_message_with_very_many_properties_is_shown(console, api):
    opened(
        console,
        api,
        body="x",
        application_properties={f"property-{number}": "v" * 200 for number in range(150)},
    )
    expect(console.text("property-149", exact=True)).to_be_visible()


# --- strict mode ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def strict():
    config = {
        "queues": {"orders": {}},
        "namespaces": {
            "team-b": {
                "queues": {"theirs": {}},
                "authorization_rules": {"team": TEAM_KEY, "reader": READER_KEY},
            }
        },
    }
    arguments = ["--authorization", "strict", "--control-api", "on"]
    with BrokerProcess(config=config, testing_api=False, arguments=arguments) as running:
        yield running


def visit(new_page, port: int, count: int = 1):
    """Opens a strict broker without a token: each refusal is logged by the browser."""
    console = new_page(port)
    console.page.goto(console.address)
    expect(console.page.get_by_role("heading", name="Sign in")).to_be_visible()
    console.page.wait_for_function("() => true")
    assert all("status of 401" in one for one in console.logged)
    console.logged.clear()
    return console


def sign_in(console, name: str, key: str) -> None:
    console.field("Name of the key").fill(name)
    console.field("Key or connection string").fill(key)
    console.button("Sign in", exact=True).click()


def test_strict_mode_asks_for_a_key_and_keeps_only_a_token(new_page, strict):
    console = visit(new_page, strict.http_port)
    assert [] == console.violations()
    sign_in(console, "RootManageSharedAccessKey", "SAS_KEY_VALUE")
    expect(console.row("orders")).to_be_visible()
    kept = console.page.evaluate(
        "JSON.stringify([{...sessionStorage}, {...localStorage}, document.cookie])"
    )
    assert "SAS_KEY_VALUE" not in kept
    assert "SharedAccessSignature" in kept
    console.page.reload()
    expect(console.row("orders")).to_be_visible()
    console.button("Sign out").click()
    expect(console.page.get_by_role("heading", name="Sign in")).to_be_visible()
    assert "SharedAccessSignature" not in console.page.evaluate(
        "JSON.stringify({...sessionStorage})"
    )


def test_a_connection_string_signs_in_as_well(new_page, strict):
    console = visit(new_page, strict.http_port)
    sign_in(
        console,
        "",
        "Endpoint=sb://localhost;SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=SAS_KEY_VALUE;",
    )
    expect(console.row("orders")).to_be_visible()


def test_a_wrong_key_is_told(new_page, strict):
    console = visit(new_page, strict.http_port)
    sign_in(console, "RootManageSharedAccessKey", "wrong")
    expect(console.page.get_by_role("alert")).to_contain_text("invalid signature")
    console.logged.clear()  # the refusals


def test_a_key_of_a_namespace_shows_only_that_namespace(new_page, strict):
    console = visit(new_page, strict.http_port)
    sign_in(console, "team", "dGVhbQ==")
    expect(console.row("theirs")).to_be_visible()
    expect(console.row("orders")).to_have_count(0)
    assert ["team-b"] == console.field("Namespace").locator("option").all_inner_texts()
    console.open("#/connect")
    expect(console.page.locator("#connection-string")).to_contain_text("YOUR_KEY")
    console.logged.clear()  # the list of namespaces is refused


def test_a_key_without_manage_is_refused(new_page, strict):
    console = visit(new_page, strict.http_port)
    sign_in(console, "reader", "cmVhZGVy")
    expect(console.page.get_by_role("alert")).to_contain_text("Manage")
    console.logged.clear()  # the refusals


def test_a_token_signs_in_and_is_asked_for_again_when_it_expires(new_page, strict):
    console = visit(new_page, strict.http_port)
    console.button("Token", exact=True).click()
    token = sas.make("sb://localhost/", "RootManageSharedAccessKey", "SAS_KEY_VALUE", 1 << 40)
    console.field("Shared access signature or bearer token").fill(token)
    console.button("Sign in", exact=True).click()
    expect(console.row("orders")).to_be_visible()
    console.page.evaluate(
        "() => sessionStorage.setItem('peeklock.token', 'SharedAccessSignature sr=x')"
    )
    console.page.reload()
    expect(console.page.get_by_role("heading", name="Sign in")).to_be_visible()
    console.logged.clear()  # the refusals


def test_a_console_whose_api_is_off_says_how_to_turn_it_on(new_page):
    with BrokerProcess(arguments=["--authorization", "strict"], testing_api=False) as closed:
        console = new_page(closed.http_port)
        console.page.goto(console.address)
        expect(console.text("The control API is off")).to_be_visible()
        expect(console.text("--control-api on")).to_be_visible()
        assert all("status of 404" in one for one in console.logged)
        console.logged.clear()


# --- other sites ---------------------------------------------------------------------------------


def test_a_page_of_another_site_can_neither_read_nor_change(browser, broker, api):
    """From another origin in the same browser: by fetch, by a form, by a frame."""
    context = browser.new_context()
    page = context.new_page()
    address = f"http://localhost:{broker.http_port}"
    page.route(
        "http://evil.example/",
        lambda route: route.fulfill(body="<h1>Evil</h1>", content_type="text/html"),
    )
    page.goto("http://evil.example/")
    tried = page.evaluate(
        """async (address) => {
            const results = [];
            for (const [path, options] of [
                ["/$peeklock/v1/entities", {}],
                ["/$peeklock/v1/purge", { method: "POST", body: '{"entity": "orders"}' }],
                ["/$peeklock/v1/messages", { method: "POST", mode: "no-cors", body: '{"entity": "orders", "messages": [{}]}' }],
                ["/orders/messages", { method: "POST", mode: "no-cors", body: "x" }],
            ]) {
                try {
                    const answer = await fetch(address + path, options);
                    results.push(answer.type === "opaque" ? "opaque" : await answer.text());
                } catch { results.push("failed"); }
            }
            return results;
        }""",
        address,
    )
    assert {"failed", "opaque"} >= set(tried)
    assert 0 == api.get("/entity", entity="orders")["counts"]["active"]
    context.close()


def test_a_name_that_resolves_to_this_machine_gets_nothing(browser, broker):
    """DNS rebinding: the page and the API have the same origin, but it is none of the broker's names."""
    context = browser.new_context()
    page = context.new_page()
    page.goto(f"http://rebound.example:{broker.http_port}/")
    expect(page.get_by_role("alert")).to_contain_text(
        "The broker is not known as 'rebound.example'."
    )
    context.close()
