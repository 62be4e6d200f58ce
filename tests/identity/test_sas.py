"""Shared access signatures: which are taken, for what, and why the others are refused."""

from __future__ import annotations

import time
from urllib.parse import quote, quote_plus

import pytest
from azure.servicebus._pyamqp.utils import generate_sas_token

from config.model.definitions import AuthorizationRule
from protocol.identity import (
    ALL_CLAIMS,
    NEVER_MS,
    Grant,
    Identity,
    KeyRule,
    TokenRefused,
    path_of,
    sas,
)
from protocol.identity.grants import TOKEN_MAX_CHARACTERS

NOW_S = 1_800_000_000
NOW_MS = NOW_S * 1000
LATER_S = NOW_S + 3600
HOST = "sb://localhost"


class Ring:
    """Rules of one namespace."""

    def __init__(self, *rules: KeyRule) -> None:
        self.rules = list(rules)

    def named(self, key_name: str, namespace: str | None) -> list[KeyRule]:
        del namespace
        return [rule for rule in self.rules if rule.rule.name.lower() == key_name.lower()]


ROOT = KeyRule(AuthorizationRule("root", "primary", "secondary"))
SENDER = KeyRule(AuthorizationRule("sender", "sender-key", rights=frozenset({"Send"})), "orders")


def verify(token: str, audience: str = f"{HOST}/orders", now_ms: int = NOW_MS) -> Grant:
    return Identity(Ring(ROOT, SENDER), strict=True).verify_token(token, audience, now_ms)


def refusal(token: str, audience: str = f"{HOST}/orders", now_ms: int = NOW_MS) -> str:
    with pytest.raises(TokenRefused) as caught:
        verify(token, audience, now_ms)
    return str(caught.value).partition(":")[0]


def test_a_known_token_is_verified():
    """A signature made elsewhere, over the literal text of `sr`."""
    token = sas.read(
        "SharedAccessSignature sr=sb%3A%2F%2Flocalhost%2Fqueue1"
        "&sig=hCF6F1gPLY6nvjA5kJ67W3yAyQPeoWQ%2BZfpbEDsVnGE%3D&se=1893456000&skn=any"
    )
    assert token.is_signed_with(b"SAS_KEY_VALUE")
    assert not token.is_signed_with(b"SAS_KEY_VALUe")


def test_the_python_sdk_and_ours_make_tokens_that_verify():
    """The SDK encodes the key's name twice."""
    name, key = "shop+x=", "k=/+"
    ring = Ring(KeyRule(AuthorizationRule(name, key)))
    identity = Identity(ring, strict=True)
    theirs = generate_sas_token(f"{HOST}/orders", name, key, LATER_S)
    for token in (theirs, sas.make(f"{HOST}/orders", name, key, LATER_S)):
        assert LATER_S * 1000 == identity.verify_token(token, "", NOW_MS).expires_at_ms


@pytest.mark.parametrize("encode", [quote, quote_plus, lambda text: quote(text, safe="").lower()])
@pytest.mark.parametrize("order", [["sr", "sig", "se", "skn"], ["sig", "se", "skn", "sr"]])
def test_the_text_of_sr_is_signed_as_it_is_spelled(encode, order):
    """SDKs differ in the case of hex digits, in what they encode, and in the order of fields."""
    resource = encode(f"{HOST}/orders")
    fields = {
        "sr": resource,
        "sig": quote_plus(_signature(b"primary", resource, str(LATER_S))),
        "se": str(LATER_S),
        "skn": "root",
    }
    token = "SharedAccessSignature " + "&".join(f"{name}={fields[name]}" for name in order)
    assert "orders" == verify(token).path


@pytest.mark.parametrize("key", ["primary", "secondary"])
def test_both_keys_of_a_rule_are_good(key):
    """So that one can be changed while the other is in use."""
    assert "orders" == verify(sas.make(HOST, "root", key, LATER_S)).path


def test_a_key_that_was_rotated_out_is_refused():
    """From the next token on. The other key stays valid."""
    ring = Ring(ROOT)
    identity = Identity(ring, strict=True)
    old = sas.make(HOST, "root", "primary", LATER_S)
    assert ALL_CLAIMS == identity.verify_token(old, HOST, NOW_MS).claims
    ring.rules[0] = KeyRule(AuthorizationRule("root", "rotated", "secondary"))
    with pytest.raises(TokenRefused, match="InvalidSignature"):
        identity.verify_token(old, HOST, NOW_MS)
    for key in ("rotated", "secondary"):
        grant = identity.verify_token(sas.make(HOST, "root", key, LATER_S), HOST, NOW_MS)
        assert ALL_CLAIMS == grant.claims


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("root", "wrong"),
        ("nobody", "primary"),
        ("root", ""),
        ("sender", "primary"),
        ("", "primary"),
    ],
)
def test_a_key_that_is_not_the_rules_is_refused(name, key):
    """Whether the rule or the key is unknown makes no difference."""
    assert "InvalidSignature" == refusal(sas.make(HOST, name, key, LATER_S))


def test_an_empty_secondary_key_is_no_key():
    """A rule without one is not opened by signing with nothing."""
    assert "InvalidSignature" == refusal(sas.make(f"{HOST}/orders", "sender", "", LATER_S))


def test_a_changed_token_is_refused():
    """Each signed part alone."""
    token = sas.make(f"{HOST}/orders", "root", "primary", LATER_S)
    assert "InvalidSignature" == refusal(token.replace(str(LATER_S), str(LATER_S + 1)))
    assert "InvalidSignature" == refusal(token.replace("%2Forders", ""))


@pytest.mark.parametrize(
    ("expires_at_s", "expected"), [(NOW_S, "ExpiredToken"), (NOW_S - 1, "ExpiredToken")]
)
def test_an_expired_token_is_refused(expires_at_s, expected):
    """At the very second it names."""
    assert expected == refusal(sas.make(HOST, "root", "primary", expires_at_s))


def test_a_token_lasts_to_its_last_millisecond():
    """By the time it is verified at."""
    token = sas.make(HOST, "root", "primary", LATER_S)
    assert "orders" == verify(token, now_ms=LATER_S * 1000 - 1).path
    assert "ExpiredToken" == refusal(token, now_ms=LATER_S * 1000)


COVERED = [
    ("sb://localhost", "sb://localhost/orders"),
    ("https://localhost:5300", "sb://localhost/a/b/c"),
    ("localhost:5300", "sb://localhost/orders"),
    ("sb://localhost/", "sb://localhost"),
    ("sb://localhost/orders", "amqp://localhost:5672/orders"),
    ("sb://localhost/ORDERS/", "sb://localhost/orders/$management"),
    ("sb://localhost/orders", "sb://localhost/Orders/$DeadLetterQueue"),
    ("sb://localhost/prices", "sb://localhost/prices/Subscriptions/all/$DeadLetterQueue"),
    ("http://localhost/a%2Fb", "sb://localhost/a/b"),
    ("http://localhost/orders?api-version=2021-05", "http://localhost/orders"),
]
NOT_COVERED = [
    ("sb://localhost/orders", "sb://localhost"),
    ("sb://localhost/orders", "sb://localhost/orders2"),
    ("sb://localhost/order", "sb://localhost/orders"),
    ("sb://localhost/orders/$management", "sb://localhost/orders"),
    ("sb://localhost/prices/Subscriptions/all", "sb://localhost/prices"),
]


@pytest.mark.parametrize(("resource", "audience"), COVERED)
def test_a_token_is_good_for_its_path_and_below(resource, audience):
    """Scheme, port, case and escapes aside."""
    assert (
        path_of(audience) == verify(sas.make(resource, "root", "primary", LATER_S), audience).path
    )


@pytest.mark.parametrize(("resource", "audience"), NOT_COVERED)
def test_a_token_is_good_for_nothing_else(resource, audience):
    """Paths are compared by their parts, not letter by letter."""
    token = sas.make(resource, "root", "primary", LATER_S)
    assert "InvalidAudience" == refusal(token, audience)


def test_the_grant_is_for_the_audience_and_not_for_all_the_token_could_reach():
    """A token of the whole namespace, put for one entity, opens that one."""
    assert "orders" == verify(sas.make(HOST, "root", "primary", LATER_S)).path


@pytest.mark.parametrize("audience", ["sb://localhost/orders", "sb://localhost/orders/$management"])
def test_the_key_of_an_entity_is_good_there(audience):
    """Also where the token is signed for the whole namespace, as administration clients do."""
    for resource in (HOST, f"{HOST}/orders"):
        grant = verify(sas.make(resource, "sender", "sender-key", LATER_S), audience)
        assert frozenset({"Send"}) == grant.claims


@pytest.mark.parametrize(
    "audience", ["sb://localhost/invoices", "sb://localhost", "sb://h/orders2"]
)
def test_the_key_of_an_entity_is_good_nowhere_else(audience):
    """With any audience."""
    for resource in (HOST, audience):
        token = sas.make(resource, "sender", "sender-key", LATER_S)
        assert "InvalidSignature" == refusal(token, audience)


GOOD = sas.make(HOST, "root", "primary", LATER_S)


@pytest.mark.parametrize(
    "token",
    [
        "SharedAccessSignature ",
        "SharedAccessSignature sr=a",
        GOOD.replace("sr=", "xx="),
        GOOD.replace("sig=", "xx="),
        GOOD.replace("se=", "xx="),
        GOOD.replace("skn=", "xx="),
        GOOD.replace(str(LATER_S), "tomorrow"),
        GOOD.replace(str(LATER_S), "9" * 5000),
        GOOD.replace("sig=", "sig=!"),
        GOOD.replace("sig=", "sig=é"),
        "",
        "nothing like a token",
        "a.b.c",
    ],
)
def test_what_is_no_token_is_called_malformed(token):
    """In strict mode what is no shared access signature is a bearer token, and those are off."""
    assert refusal(token) in {"MalformedToken", "InvalidToken"}


def test_a_token_may_last_as_long_as_it_likes():
    """However many digits its expiry has."""
    assert NEVER_MS == verify(sas.make(HOST, "root", "primary", int("9" * 400))).expires_at_ms


def test_names_of_rules_compare_without_case():
    """As all names of Service Bus do."""
    assert "orders" == verify(sas.make(HOST, "ROOT", "primary", LATER_S)).path


def test_manage_includes_the_other_claims():
    """Also where a rule names it alone."""
    only = KeyRule(AuthorizationRule("m", "k", rights=frozenset({"Manage"})))
    grant = Identity(Ring(only), strict=True).verify_token(
        sas.make(HOST, "m", "k", LATER_S), HOST, NOW_MS
    )
    assert {"Send", "Listen", "Manage"} == grant.claims


def _signature(key: bytes, resource: str, expiry: str) -> bytes:
    import base64
    import hashlib
    import hmac

    digest = hmac.new(key, f"{resource}\n{expiry}".encode(), hashlib.sha256).digest()
    return base64.b64encode(digest)


@pytest.mark.parametrize("field", ["skn", "sr", "sig", "se"])
def test_decoding_a_token_takes_time_by_its_length(field: str):
    """A field that is encoded thousands of times over is decoded a few times, before any key is
    checked: 30,000 characters took seconds."""
    fields = {"sr": "sb%3a%2f%2fh%2forders", "sig": "c2ln", "se": str(LATER_S), "skn": "root"}
    fields[field] = "%" + "25" * 15_000
    text = "SharedAccessSignature " + "&".join(f"{name}={fields[name]}" for name in fields)
    began = time.process_time()
    with pytest.raises(TokenRefused):
        verify(text)
    assert time.process_time() - began < 0.1


@pytest.mark.parametrize("start", ["SharedAccessSignature sr=", "eyJ"])
def test_a_token_has_a_greatest_length(start: str):
    with pytest.raises(TokenRefused, match="MalformedToken: The token has more than 32768"):
        verify(start + "x" * TOKEN_MAX_CHARACTERS)


def test_an_audience_has_a_greatest_length():
    token = sas.make(HOST, "root", "primary", LATER_S)
    with pytest.raises(TokenRefused, match="InvalidAudience: The audience has more than 2048"):
        Identity(Ring(ROOT), strict=True).verify_token(token, HOST + "/x" * 2_000, NOW_MS)


def test_the_refusal_of_an_expired_token_names_the_expiry_time():
    """In the service's words."""
    token = sas.make(HOST, "root", "primary", 1_700_000_000)
    with pytest.raises(TokenRefused) as refused:
        verify(token)
    assert "ExpiredToken: The token is expired. Expiration time: '2023-11-14 22:13:20Z'." == str(
        refused.value
    )


def test_a_token_that_is_no_text_is_not_signed():
    """HTTP headers may hold any bytes, which reach us as surrogates."""
    token = sas.read("SharedAccessSignature sr=a\udcf7b&sig=AAAA&se=1&skn=key")
    assert not token.is_signed_with(b"key")
