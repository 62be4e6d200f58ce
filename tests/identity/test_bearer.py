"""Bearer tokens: believed in development, verified in strict mode."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from protocol.identity import ALL_CLAIMS, Identity, TokenRefused
from protocol.identity.bearer_tokens import Verifier, read_keys

if TYPE_CHECKING:
    from collections.abc import Sequence

NOW_S = 1_800_000_000
NOW_MS = NOW_S * 1000
AUDIENCE = "sb://localhost/orders"
CLAIMS = {"exp": NOW_S + 60, "roles": ["Send"]}
SECRET = b"a secret that is long enough for the longest signature there is, HS512"

RSA = rsa.generate_private_key(65537, 2048)
OTHER_RSA = rsa.generate_private_key(65537, 2048)
CURVE = ec.generate_private_key(ec.SECP256R1())
EDWARDS = ed25519.Ed25519PrivateKey.generate()


class NoKeys:
    def named(self, key_name: str, namespace: str | None) -> Sequence[Any]:
        del key_name, namespace
        return ()


def pem(key: Any) -> bytes:
    public: bytes = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return public


def key_set(*keys: tuple[Any, str | None]) -> bytes:
    members = []
    for key, key_id in keys:
        member = jwt.algorithms.RSAAlgorithm.to_jwk(key.public_key(), as_dict=True)
        members.append(member if key_id is None else {**member, "kid": key_id})
    return json.dumps({"keys": members}).encode()


def strict(content: bytes, **expected: str) -> Identity:
    verifier = Verifier(read_keys(content), **expected)
    return Identity(NoKeys(), strict=True, verify_bearer=verifier.verify)


def refusal(identity: Identity, token: str) -> str:
    with pytest.raises(TokenRefused) as caught:
        identity.verify_token(token, AUDIENCE, NOW_MS)
    return str(caught.value)


# --- development -------------------------------------------------------------------------------

DEVELOPMENT = Identity(NoKeys(), strict=False)


def test_development_accepts_any_well_formed_token():
    """Signed by anyone, for the entity it was put for."""
    token = jwt.encode({"exp": NOW_S + 60}, "x" * 32, "HS256")
    grant = DEVELOPMENT.verify_token(token, AUDIENCE, NOW_MS)
    assert (ALL_CLAIMS, "orders", (NOW_S + 60) * 1000) == (
        grant.claims,
        grant.path,
        grant.expires_at_ms,
    )


def _raw(header: object, claims: object, signature: str = "") -> str:
    def part(value: object) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

    return f"{part(header)}.{part(claims)}.{signature}"


@pytest.mark.parametrize(
    "token",
    [
        "",
        "rubbish",
        "a.b.c",
        "é.é.é",
        _raw({}, {}),
        _raw([], {}),
        _raw({"alg": "none"}, "text"),
        _raw({"alg": "none"}, {"exp": "soon"}),
        _raw({"alg": "none"}, {"exp": float("inf")}),
        _raw({"alg": "none"}, {"exp": [1]}),
        _raw({"alg": "none"}, {}).rpartition(".")[0],
    ],
)
def test_what_is_no_token_is_malformed_in_development_too(token):
    """It is refused in words."""
    assert "MalformedToken" == refusal(DEVELOPMENT, token).partition(":")[0]


def test_an_expired_token_is_refused_in_development_too():
    """An SDK would not send one."""
    assert refusal(DEVELOPMENT, _raw({"alg": "none"}, {"exp": NOW_S})).startswith("ExpiredToken")


# --- strict ------------------------------------------------------------------------------------


def test_strict_without_keys_takes_none():
    """And says which setting is missing."""
    identity = Identity(NoKeys(), strict=True)
    assert "jwt_keys" in refusal(identity, jwt.encode(CLAIMS, SECRET, "HS256"))


@pytest.mark.parametrize(
    ("content", "key", "algorithm"),
    [
        (SECRET + b"\n", SECRET, "HS256"),
        (SECRET, SECRET, "HS512"),
        (pem(RSA), RSA, "RS256"),
        (pem(RSA), RSA, "PS384"),
        (pem(CURVE), CURVE, "ES256"),
        (pem(EDWARDS), EDWARDS, "EdDSA"),
        (pem(CURVE) + pem(RSA), RSA, "RS256"),
        (key_set((RSA, None)), RSA, "RS256"),
        (key_set((OTHER_RSA, "a"), (RSA, "b")), RSA, "RS256"),
    ],
)
def test_a_token_signed_with_a_configured_key_is_taken(content, key, algorithm):
    """A secret, public keys in PEM, or a JWK set."""
    token = jwt.encode(CLAIMS, key, algorithm)
    assert {"Send"} == strict(content).verify_token(token, AUDIENCE, NOW_MS).claims


@pytest.mark.parametrize(
    ("key_id", "expected"),
    [("b", "taken"), ("a", "InvalidSignature"), ("c", "InvalidSignature")],
)
def test_the_key_a_token_names_is_the_one_it_is_verified_with(key_id, expected):
    """Where the set has names for its keys."""
    identity = strict(key_set((OTHER_RSA, "a"), (RSA, "b")))
    token = jwt.encode(CLAIMS, RSA, "RS256", headers={"kid": key_id})
    if expected == "taken":
        assert {"Send"} == identity.verify_token(token, AUDIENCE, NOW_MS).claims
    else:
        assert refusal(identity, token).startswith(expected)


@pytest.mark.parametrize(
    "token",
    [
        jwt.encode(CLAIMS, OTHER_RSA, "RS256"),
        jwt.encode(CLAIMS, CURVE, "ES256"),
        jwt.encode(CLAIMS, "", "none"),
        jwt.encode(CLAIMS, RSA, "RS256")[:-8] + "AAAAAAAA",
    ],
)
def test_a_token_signed_otherwise_is_refused(token):
    """By another key, or by none."""
    assert refusal(strict(pem(RSA)), token).startswith("InvalidSignature")


def test_a_public_key_is_never_taken_for_a_secret():
    """A token that says HS256 and is signed with the public key's text."""
    header = base64.urlsafe_b64encode(b'{"alg":"HS256"}').decode().rstrip("=")
    body = base64.urlsafe_b64encode(json.dumps(CLAIMS).encode()).decode().rstrip("=")
    import hashlib
    import hmac

    for text in (pem(RSA), pem(RSA).strip()):
        digest = hmac.new(text, f"{header}.{body}".encode(), hashlib.sha256).digest()
        token = f"{header}.{body}.{base64.urlsafe_b64encode(digest).decode().rstrip('=')}"
        assert refusal(strict(pem(RSA)), token).startswith("InvalidSignature")


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"exp": NOW_S}, "ExpiredToken"),
        ({"exp": None}, "InvalidToken"),
        ({"nbf": NOW_S + 1}, "InvalidToken: The token is not valid yet"),
        ({"roles": []}, "InvalidToken: The token grants nothing"),
        ({"roles": ["Reader"]}, "InvalidToken: The token grants nothing"),
        ({"iss": "someone else"}, "InvalidToken"),
        ({"aud": "something else"}, "InvalidToken"),
        ({"iss": None}, "InvalidToken"),
        ({"aud": None}, "InvalidToken"),
    ],
)
def test_what_a_token_says_is_checked(changed, expected):
    """Time by the broker's clock; issuer and audience where they are configured."""
    identity = strict(SECRET, issuer="us", audience="peeklock")
    good = {**CLAIMS, "iss": "us", "aud": "peeklock", "nbf": NOW_S}
    assert {"Send"} == identity.verify_token(
        jwt.encode(good, SECRET, "HS256"), AUDIENCE, NOW_MS
    ).claims
    claims = {name: value for name, value in {**good, **changed}.items() if value is not None}
    assert refusal(identity, jwt.encode(claims, SECRET, "HS256")).startswith(expected)


def test_issuer_and_audience_are_not_asked_for_where_none_is_configured():
    """A token may name any."""
    token = jwt.encode({**CLAIMS, "iss": "anyone", "aud": "anything"}, SECRET, "HS256")
    assert {"Send"} == strict(SECRET).verify_token(token, AUDIENCE, NOW_MS).claims


@pytest.mark.parametrize(
    ("claims", "granted"),
    [
        ({"roles": ["Send"]}, {"Send"}),
        ({"roles": ["send", "LISTEN"]}, {"Send", "Listen"}),
        ({"roles": ["Manage"]}, ALL_CLAIMS),
        ({"roles": ["Azure Service Bus Data Sender"]}, {"Send"}),
        ({"roles": ["Azure Service Bus Data Receiver", "other"]}, {"Listen"}),
        ({"roles": ["Azure Service Bus Data Owner"]}, ALL_CLAIMS),
        ({"scp": "Listen profile"}, {"Listen"}),
        ({"scope": "Send Listen"}, {"Send", "Listen"}),
        ({"scope": ["Send"], "roles": ["Listen"]}, {"Send", "Listen"}),
    ],
)
def test_roles_and_scopes_are_claims(claims, granted):
    """In the words of Service Bus or of Azure's roles."""
    token = jwt.encode({"exp": NOW_S + 60, **claims}, SECRET, "HS256")
    assert granted == strict(SECRET).verify_token(token, AUDIENCE, NOW_MS).claims


DEEP = base64.urlsafe_b64encode(b"[" * 21_000).decode()


@pytest.mark.parametrize(
    "token", ["", "rubbish", "a.b.c", "é.é.é", "\udcff", "\udcff.\udcff.\udcff", f"{DEEP}.e30.AAAA"]
)
@pytest.mark.parametrize("identity", [DEVELOPMENT, strict(SECRET)])
def test_what_is_no_token_is_malformed(identity, token):
    """Also where keys are configured. Header bytes that are not UTF-8 arrive as surrogates."""
    assert refusal(identity, token).startswith("MalformedToken")


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b" \n", "it is empty"),
        (b"{}", "it is no JWK set"),
        (b'{"keys": []}', "without keys"),
        (b'{"keys": [1]}', "it is no JWK set"),
        (b'{"keys": ', "it is no JWK set"),
        (b"-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----", "no public key"),
        (
            RSA.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
            "no public key",
        ),
    ],
)
def test_a_file_without_usable_keys_says_what_is_wrong(content, expected):
    """Instead of refusing every token later."""
    with pytest.raises(ValueError, match=expected):
        read_keys(content)
