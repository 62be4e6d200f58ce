"""HTTP that is nearly right, and tokens that are nearly good, over HTTP and over AMQP.

Owns heads, bodies and tokens; a case is the bytes that one client sends.
"""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING

from protocol.codec import Described, ULong, encode
from protocol.identity import sas
from tests.fuzz.mutations import mutate
from tests.support import amqp_frames

if TYPE_CHECKING:
    import random

KEY_NAME, KEY = "RootManageSharedAccessKey", "SAS_KEY_VALUE"
YEAR_2100_S = 4_102_444_800
"""The same whenever a case is made again."""
METHODS = ("GET", "PUT", "POST", "DELETE", "HEAD", "OPTIONS", "PATCH", "CONNECT", "x" * 300, "")
PATHS = (
    "/health",
    "/metrics",
    "/$peeklock/clock",
    "/$Resources/Queues",
    "/$Resources/Topics?$skip=-1&$top=99999999999999999999",
    "/fuzz-0",
    "/fuzz-0/messages",
    "/fuzz-0/messages/head?timeout=0",
    "/fuzz-0/messages/1/00000000-0000-0000-0000-000000000000",
    "/topic.1/Subscriptions/s/Rules/r",
    "/$servicebus/websocket",
    "/%00",
    "/%ff%fe",
    "/" + "a" * 9_000,
    "/../../etc/passwd",
    "http://elsewhere/fuzz-0",
    "*",
    "",
)
DESCRIPTIONS = (
    "QueueDescription",
    "TopicDescription",
    "SubscriptionDescription",
    "RuleDescription",
)
ELEMENTS = (
    "LockDuration",
    "MaxDeliveryCount",
    "DefaultMessageTimeToLive",
    "UserMetadata",
    "RequiresSession",
    "ForwardTo",
    "AuthorizationRules",
    "Filter",
    "Action",
    "SqlExpression",
    "Status",
    "AutoDeleteOnIdle",
)
TEXTS = (
    "",
    "PT5S",
    "P99999999999999D",
    "-1",
    "true",
    "99999999999999999999999999",
    "a" * 3_000,
    "&lt;",
    "&#0;",
    "<![CDATA[x]]>",
    "NOT (" * 200,
    "1=1 AND sys.Label LIKE '%a%' ESCAPE '\\'",
)
SERVICE_BUS = "http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"


def token(chance: random.Random) -> str:
    """A token that is good, or was."""
    good = sas.make(f"sb://127.0.0.1/{chance.choice(('', 'fuzz-0'))}", KEY_NAME, KEY, YEAR_2100_S)
    match chance.randrange(7):
        case 0:
            return good
        case 1 | 2:
            return mutate(good.encode(), [good.encode()], chance).decode("latin-1")
        case 3:
            name = chance.choice(("%25" * 3_000, "%" * 500, "%u0000", "+" * 100, "%ff"))
            return (
                f"SharedAccessSignature sr={name}&sig={name}&se={chance.choice(TEXTS)}&skn={name}"
            )
        case 4:
            return "SharedAccessSignature " + "&".join(["sr=x"] * chance.choice((1, 500)))
        case _:
            return _bearer(chance)


def _bearer(chance: random.Random) -> str:
    def part(value: object) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

    header = part({"alg": chance.choice(("none", "RS256", "HS256", "", 7)), "kid": "x"})
    nested: object = 1
    for _ in range(chance.choice((1, 50, 400))):
        nested = [nested]
    claims = part(
        {"aud": chance.choice((1, [], "x")), "exp": chance.choice((0, 1e300, "x")), "n": nested}
    )
    text = f"Bearer {header}.{claims}.{'A' * chance.choice((0, 1, 342))}"
    return mutate(text.encode(), [text.encode()], chance).decode("latin-1")


def put_token(chance: random.Random) -> bytes:
    """A whole connection that shows a token to `$cbs`."""
    shown: object = token(chance)
    if chance.random() < 0.1:
        shown = chance.choice((None, 7, b"\0", [], {}))
    kind = chance.choice(("servicebus.windows.net:sastoken", "jwt", "", "x"))
    audience = chance.choice(("sb://127.0.0.1/fuzz-0", "", "amqp://" + "a/" * 400, "%25" * 300))
    request = b"".join(
        map(
            encode,
            (
                Described(ULong(0x73), ["request", None, "$cbs", None, "reply"]),
                Described(ULong(0x74), {"operation": "put-token", "type": kind, "name": audience}),
                Described(ULong(0x77), shown),
            ),
        )
    )
    beginning = amqp_frames.HEADER + amqp_frames.open_frame() + amqp_frames.begin_frame()
    links = amqp_frames.attach_sender("requests", 0, "$cbs") + amqp_frames.attach_receiver(
        "reply", 1, "$cbs"
    )
    data = beginning + links + amqp_frames.flow(10, handle=1) + amqp_frames.transfer(0, request)
    return mutate(data, [data], chance) if chance.random() < 0.2 else data


def request(chance: random.Random) -> bytes:
    """One HTTP request, or several on one connection."""
    data = b"".join(_one(chance) for _ in range(chance.choice((1, 1, 1, 4))))
    return mutate(data, [data], chance) if chance.random() < 0.5 else data


def _one(chance: random.Random) -> bytes:
    body = _body(chance)
    headers = {
        "Host": chance.choice(("127.0.0.1", "", "x" * 500)),
        "Authorization": token(chance).replace("\r", "").replace("\n", ""),
        "Content-Length": chance.choice((str(len(body)),) * 6 + ("-1", "9" * 30, "0", "x")),
    }
    if chance.random() < 0.2:
        headers["Transfer-Encoding"] = chance.choice(("chunked", "gzip, chunked", "x"))
        del headers["Content-Length"]
    if chance.random() < 0.2:
        headers |= {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13"}
        headers["Sec-WebSocket-Key"] = chance.choice(("dGhlIHNhbXBsZSBub25jZQ==", "x"))
        headers["Sec-WebSocket-Protocol"] = chance.choice(("AMQPWSB10", "x"))
    if chance.random() < 0.3:
        headers["BrokerProperties"] = chance.choice(
            ('{"MessageId":1}', "{", "[]", '{"TimeToLive":1e999}', "null", '{"a":' * 300, "é")
        )
    if chance.random() < 0.2:
        headers["Content-Type"] = chance.choice(
            ("application/vnd.microsoft.servicebus.json", "x", "application/atom+xml")
        )
    if chance.random() < 0.2:
        headers["If-Match"] = chance.choice(("*", "x"))
    lines = [f"{chance.choice(METHODS[:6] * 5 + METHODS)} {chance.choice(PATHS)} HTTP/1.1"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    lines += ["x: y"] * chance.choice((0, 0, 0, 300))
    return "\r\n".join([*lines, "", ""]).encode("utf-8", "surrogateescape") + body


def _body(chance: random.Random) -> bytes:
    match chance.randrange(6):
        case 0:
            return b""
        case 1:
            return chance.randbytes(chance.randrange(2_000))
        case 2:
            messages = [{"Body": chance.choice(TEXTS), "BrokerProperties": {"Label": 1}}]
            return json.dumps(messages * chance.choice((1, 50))).encode()
        case 3:
            return b'<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;">]><x>&b;</x>'
        case 4:
            return b"<a>" * chance.choice((1, 3_000))
        case _:
            kind = chance.choice(DESCRIPTIONS)
            elements = "".join(
                f"<{name}>{chance.choice(TEXTS)}</{name}>" for name in chance.choices(ELEMENTS, k=3)
            )
            entry = (
                '<entry xmlns="http://www.w3.org/2005/Atom"><content type="application/xml">'
                f'<{kind} xmlns="{SERVICE_BUS}">{elements}</{kind}></content></entry>'
            )
            return entry.encode()
