"""The administration API request by request: spellings of other SDKs, wrong and hostile input."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from broker.core.contract.commands import AddRule, CreateEntity, GetEntity
from config.model.definitions import CorrelationFilter, QueueDefinition, RuleDefinition
from protocol.codec import Int, Long, Symbol, UInt
from tests.http.client import ATOM, SERVICE_BUS, Answer, entry, queue_entry, request

if TYPE_CHECKING:
    from tests.http.harness import HttpHarness

TOPIC = entry("<TopicDescription/>")
SUBSCRIPTION = entry("<SubscriptionDescription/>")


@pytest.fixture
def put(harness: HttpHarness):
    def send(path: str, body: str | bytes, **headers: str) -> Answer:
        return request(harness.port, "PUT", path, body, headers)

    return send


@pytest.fixture
def get(harness: HttpHarness):
    def send(path: str, **headers: str) -> Answer:
        return request(harness.port, "GET", path, None, headers)

    return send


def detail(answer: Answer) -> str:
    """Returns the sentence of an error body, and checks the rest of the body."""
    error = answer.xml
    assert "Error" == error.tag
    assert str(answer.status) == error.findtext("Code")
    text = error.findtext("Detail")
    assert text is not None
    assert text.startswith((f"SubCode={answer.status}00. ", "The specified HTTP verb"))
    return text


# --- spellings ---------------------------------------------------------------------------------


def test_keywords_are_taken_in_any_case_and_with_a_slash_at_the_end(put, get):
    """Each SDK has its own spelling; all mean the same."""
    put("/Spelled", TOPIC)
    put("/spelled/SUBSCRIPTIONS/One/", SUBSCRIPTION)
    for path in (
        "/spelled/subscriptions/one/rules/$default",
        "/SPELLED/Subscriptions/ONE/Rules/%24Default/",
        "/spelled/Subscriptions/one/Rules",
        "/spelled/Subscriptions/one/rules/",
        "/spelled/Subscriptions/",
        "/spelled/Subscriptions??&$top=10&$skip=0",
        "/$Resources/Topics",
        "/$resources/topics/",
        "/%24Resources/queues?%24skip=0&%24top=100&enrich=False",
        "/$NamespaceInfo",
    ):
        answer = get(path)
        assert 200 == answer.status, path
        assert "application/atom+xml" in answer.headers["Content-Type"]


def test_slashes_in_names_come_raw_or_encoded(put, get):
    """Python sends `%2F`, the others `/`: both are one entity."""
    assert 201 == put("/a%2Fb%2Fc", queue_entry()).status
    assert "a/b/c" == get("/a/b/c").xml.findtext(f"{ATOM}title")
    assert 409 == put("/a/b/c", queue_entry()).status


def test_addresses_hold_names_as_they_are_where_they_can(put, get):
    """JavaScript takes names from the id and decodes nothing."""
    put("/a+b:c~(d)", queue_entry())
    answer = get("/a+b:c~(d)?api-version=2021-05", Host="broker")
    assert "http://broker/a+b:c~(d)?api-version=2021-05" == answer.xml.findtext(f"{ATOM}id")


def test_addresses_are_absolute_and_start_with_the_host_the_client_used(put, get):
    """The JavaScript SDK reads names from the id, in which keywords are capitalized regardless of
    the request."""
    put("/href", TOPIC)
    put("/href/subscriptions/s", SUBSCRIPTION)
    answer = get("/href/subscriptions/s/rules/$default?api-version=2021-05", Host="broker:5300")
    expected = "http://broker:5300/href/Subscriptions/s/Rules/$Default?api-version=2021-05"
    assert expected == answer.xml.findtext(f"{ATOM}id")
    assert expected == answer.xml.find(f"{ATOM}link").get("href")
    assert "$Default" == answer.xml.findtext(f"{ATOM}title")


def test_pages_link_to_the_next_with_skip_and_top(put, get):
    """Two links while there is more, self first; one on the last page."""
    put("/pages", TOPIC)
    for number in range(5):
        put(f"/pages/subscriptions/{number}", SUBSCRIPTION)
    first = get("/pages/subscriptions?$top=2&api-version=2021-05", Host="h").xml
    assert ["self", "next"] == [link.get("rel") for link in first.findall(f"{ATOM}link")]
    assert "http://h/pages/subscriptions?api-version=2021-05&$skip=2&$top=2" == first.findall(
        f"{ATOM}link"
    )[1].get("href")
    last = get("/pages/subscriptions?$skip=4&$top=2").xml
    assert ["self"] == [link.get("rel") for link in last.findall(f"{ATOM}link")]
    assert ["4"] == [one.findtext(f"{ATOM}title") for one in last.findall(f"{ATOM}entry")]
    exact = get("/pages/subscriptions?$skip=3&$top=2").xml
    assert 1 == len(exact.findall(f"{ATOM}link"))
    beyond = get("/pages/subscriptions?$skip=5").xml
    assert f"{ATOM}feed" == beyond.tag
    assert [] == beyond.findall(f"{ATOM}entry")


def test_javascript_gets_the_shapes_it_insists_on(put, get):
    """Unprefixed names, one declared prefix for the counts, `i:type` and a five-character cut."""
    put("/shapes", queue_entry())
    text = get("/shapes").text
    assert re.search(
        r'<CountDetails xmlns:d2p1="[^"]+"><d2p1:ActiveMessageCount>0</d2p1:ActiveMessageCount>',
        text,
    )
    assert '<QueueDescription xmlns="http://schemas' in text
    put("/shapes-topic", TOPIC)
    put("/shapes-topic/subscriptions/s", SUBSCRIPTION)
    rule = """<RuleDescription><Filter i:type="CorrelationFilter"
        xmlns:i="http://www.w3.org/2001/XMLSchema-instance"><Properties>
        <KeyValueOfstringanyType><Key>k</Key><Value i:type="x:int"
        xmlns:x="http://www.w3.org/2001/XMLSchema">5</Value></KeyValueOfstringanyType>
        </Properties></Filter></RuleDescription>"""
    assert 201 == put("/shapes-topic/subscriptions/s/rules/r", entry(rule)).status
    text = get("/shapes-topic/subscriptions/s/rules/r").text
    assert '<Filter i:type="CorrelationFilter">' in text
    assert (
        '<Value i:type="d6p1:int" xmlns:d6p1="http://www.w3.org/2001/XMLSchema">5</Value>' in text
    )
    assert '<Action i:type="EmptyRuleAction">' in text


def test_every_sdks_prefix_is_resolved_by_its_namespace(put, get):
    """`p4:type` from JavaScript is `i:type` from .NET is `xsi:type` from Python."""
    put("/prefixes", TOPIC)
    put("/prefixes/subscriptions/s", SUBSCRIPTION)
    for name, prefix in {"js": "p4", "net": "i", "python": "xsi"}.items():
        body = entry(
            f"""<ns0:RuleDescription xmlns:ns0="urn:whatever"><ns0:Filter {prefix}:type="SqlFilter"
            xmlns:{prefix}="http://www.w3.org/2001/XMLSchema-instance">
            <ns0:SqlExpression>a = 1</ns0:SqlExpression></ns0:Filter></ns0:RuleDescription>"""
        )
        assert 201 == put(f"/prefixes/subscriptions/s/rules/{name}", body).status
        read = get(f"/prefixes/subscriptions/s/rules/{name}").xml
        assert "a = 1" == read.findtext(f".//{SERVICE_BUS}SqlExpression")


def test_a_subscription_may_bring_its_first_rule(put, get):
    """DefaultRuleDescription takes the place of the rule that lets everything in."""
    put("/first", TOPIC)
    body = entry(
        """<SubscriptionDescription><DefaultRuleDescription>
        <Filter i:type="SqlFilter" xmlns:i="http://www.w3.org/2001/XMLSchema-instance">
        <SqlExpression>a = 1</SqlExpression></Filter><Name>mine</Name></DefaultRuleDescription>
        </SubscriptionDescription>"""
    )
    assert 201 == put("/first/Subscriptions/s", body).status
    feed = get("/first/Subscriptions/s/Rules/").xml
    assert ["mine"] == [one.findtext(f"{ATOM}title") for one in feed.findall(f"{ATOM}entry")]


def test_order_unknown_and_read_only_elements_do_not_matter(put, get):
    """.NET replays unknown elements, Python read-only ones."""
    body = queue_entry(
        "<SizeInBytes>77</SizeInBytes><MaxDeliveryCount>3</MaxDeliveryCount><FromTheFuture/>"
        "<LockDuration>PT10S</LockDuration><CreatedAt>garbage</CreatedAt>"
        '<ForwardTo i:nil="true"/><UserMetadata></UserMetadata>'
    )
    assert 201 == put("/any-order", body).status
    read = get("/any-order").xml
    assert "3" == read.findtext(f".//{SERVICE_BUS}MaxDeliveryCount")
    assert "PT10S" == read.findtext(f".//{SERVICE_BUS}LockDuration")
    assert "0" == read.findtext(f".//{SERVICE_BUS}SizeInBytes")


def test_what_an_update_leaves_out_returns_to_its_default(put, get):
    """.NET leaves out what is at its default; what is decided once is not reset."""
    put(
        "/reset",
        queue_entry(
            "<RequiresSession>true</RequiresSession><MaxDeliveryCount>3</MaxDeliveryCount>"
            "<DefaultMessageTimeToLive>PT1H</DefaultMessageTimeToLive>"
        ),
    )
    assert 200 == put("/reset", queue_entry(), **{"If-Match": "*"}).status
    read = get("/reset").xml
    assert "10" == read.findtext(f".//{SERVICE_BUS}MaxDeliveryCount")
    assert "P10675199DT2H48M5.4775807S" == read.findtext(
        f".//{SERVICE_BUS}DefaultMessageTimeToLive"
    )
    assert "true" == read.findtext(f".//{SERVICE_BUS}RequiresSession")


def test_the_oldest_api_version_does_not_see_newer_elements(put, get):
    """2017-04 knows no message size; only 2024-05 counts filters."""
    put("/versions", TOPIC)
    oldest = get("/versions?api-version=2017-04").text
    middle = get("/versions?api-version=2021-05").text
    newest = get("/versions?api-version=2024-05").text
    assert (False, True, True) == tuple(
        "MaxMessageSizeInKilobytes" in text for text in (oldest, middle, newest)
    )
    assert (False, False, True) == tuple(
        "SqlFilterCount" in text for text in (oldest, middle, newest)
    )


# --- refusals ----------------------------------------------------------------------------------


def test_a_refusal_says_what_and_can_be_traced(harness: HttpHarness):
    """Code, sub-code, sentence, tracking id and time; the entity is named as the service does."""
    answer = request(harness.port, "DELETE", "/nowhere", headers={"Host": "here:5300"})
    assert 404 == answer.status
    assert "application/xml; charset=utf-8" == answer.headers["Content-Type"]
    assert re.search(
        r"^SubCode=40400\. Not Found\. The messaging entity 'sb://here:5300/nowhere' could not be found\. "
        r"TrackingId:[0-9a-f-]{36}_G0, SystemTracker:\S+, Timestamp:\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d$",
        detail(answer),
    )


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
@pytest.mark.parametrize(
    "part",
    [
        "whole/$DeadLetterQueue",
        "whole/$deadletterqueue",
        "whole/$Transfer/$DeadLetterQueue",
        "whole/$management",
        "whole-topic/$DeadLetterQueue",
        "whole-topic/Subscriptions/s/$DeadLetterQueue",
        "whole-topic/Subscriptions/s/$Transfer/$DeadLetterQueue",
        "whole-topic/Subscriptions/s/$management",
    ],
)
def test_a_part_of_an_entity_cannot_be_managed(harness: HttpHarness, put, part, method):
    """Deleting a dead-letter queue must not delete the queue. The service answers 400, and only
    for that .NET raises its argument error."""
    put("/whole", queue_entry())
    put("/whole-topic", TOPIC)
    put("/whole-topic/Subscriptions/s", SUBSCRIPTION)
    body = queue_entry() if method == "PUT" else None
    answer = request(harness.port, method, f"/{part}", body)
    assert 400 == answer.status
    assert detail(answer).startswith(f"The specified HTTP verb ({method}) is not valid.")
    for entity in ("whole", "whole-topic", "whole-topic/Subscriptions/s"):
        assert "Description" in request(harness.port, "GET", f"/{entity}").text


@pytest.mark.parametrize("path", ["", "nowhere", "no/where", "nowhere/Subscriptions/s"])
def test_what_is_not_there_is_shown_as_the_empty_list_of_the_service(get, path):
    """200, as the service answers: every SDK makes its own not-found error of it."""
    answer = get(f"/{path}?api-version=2021-05")
    assert (200, "application/atom+xml;type=feed;charset=utf-8") == (
        answer.status,
        answer.headers["Content-Type"],
    )
    assert f"{ATOM}feed" == answer.xml.tag
    assert "Publicly Listed Services" == answer.xml.findtext(f"{ATOM}title")
    assert answer.xml.find(f"{ATOM}entry") is None


@pytest.mark.parametrize("path", ["there/Subscriptions/none", "there/Subscriptions/s/Rules/none"])
def test_a_subscription_or_rule_that_is_missing_is_not_found(get, put, path):
    """404 where the topic is there."""
    put("/there", TOPIC)
    put("/there/Subscriptions/s", SUBSCRIPTION)
    answer = get(f"/{path}")
    assert 404 == answer.status
    assert f"/{path}' could not be found" in detail(answer)


@pytest.mark.parametrize("is_update", [False, True])
@pytest.mark.parametrize("kind", ["Queue", "Topic"])
def test_a_property_newer_than_the_api_version_is_refused(put, kind, is_update):
    """In the service's words, from its recorded answers."""
    headers = {"If-Match": "*"} if is_update else {}
    new = "<MaxMessageSizeInKilobytes>1024</MaxMessageSizeInKilobytes>"
    body = entry(f"<{kind}Description>{new}</{kind}Description>")
    old = entry(f"<{kind}Description></{kind}Description>")
    put(f"/new-{kind}?api-version=2021-05", old)
    name = f"/new-{kind}" if is_update else f"/newer-{kind}"
    answer = put(f"{name}?api-version=2017-04", body, **headers)
    assert 400 == answer.status
    assert detail(answer).startswith(
        f"SubCode=40000. The entity description of type '{kind}Description' has unsupported "
        "properties for api-version '2017-04' in the request. Try including the correct "
        "api-version query string in the request."
    )
    status = 200 if is_update else 201
    assert status == put(f"{name}?api-version=2021-05", body, **headers).status
    assert 200 == put(f"{name}?api-version=2017-04", old, **{"If-Match": "*"}).status


def test_what_topics_count_is_newer_than_2021(put):
    """An update that repeats what only 2024-05 shows is refused before that."""
    body = entry("<TopicDescription><SqlFilterCount>0</SqlFilterCount></TopicDescription>")
    put("/counting", TOPIC)
    assert 400 == put("/counting?api-version=2021-05", body, **{"If-Match": "*"}).status
    assert 200 == put("/counting?api-version=2024-05", body, **{"If-Match": "*"}).status


@pytest.mark.parametrize(
    ("path", "kind", "name", "sentence"),
    [
        (path, kind, name, f"The value for the {name} property of an existing {kind} cannot be")
        for path, kind, name in (
            ("fixed", "Queue", "RequiresSession"),
            ("fixed", "Queue", "RequiresDuplicateDetection"),
            ("fixed-topic", "Topic", "RequiresDuplicateDetection"),
            ("fixed-topic/Subscriptions/s", "Subscription", "RequiresSession"),
        )
    ]
    + [
        (path, kind, "EnablePartitioning", f"Partitioning cannot be changed for {kind}. ")
        for path, kind in (("fixed", "Queue"), ("fixed-topic", "Topic"))
    ],
)
def test_what_cannot_change_is_refused_in_the_services_words(put, path, kind, name, sentence):
    """Tests of the Go SDK compare the sentences, which contain no names of the broker."""
    put("/fixed", queue_entry())
    put("/fixed-topic", TOPIC)
    put("/fixed-topic/Subscriptions/s", SUBSCRIPTION)
    body = entry(f"<{kind}Description><{name}>true</{name}></{kind}Description>")
    answer = put(f"/{path}", body, **{"If-Match": "*"})
    assert 400 == answer.status
    assert detail(answer).startswith(f"SubCode=40000. {sentence}")
    assert not re.search(r"[a-z]_[a-z]", detail(answer).partition("TrackingId")[0])


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/some-queue"),
        ("PATCH", "/some-queue"),
        ("PUT", "/$Resources/queues"),
        ("DELETE", "/$namespaceinfo"),
        ("POST", "/topic/subscriptions"),
    ],
)
def test_a_verb_that_means_nothing_here_is_refused(harness: HttpHarness, method, path):
    """405, in the same shape as every refusal."""
    answer = request(harness.port, method, path)
    assert 405 == answer.status
    detail(answer)


@pytest.mark.parametrize("query", ["$top=0", "$top=-1", "$top=x", "$skip=1e3", "$skip=9999999999"])
def test_a_page_that_cannot_be_is_refused(get, query):
    """400 instead of a guess."""
    answer = get(f"/$Resources/queues?{query}")
    assert 400 == answer.status
    assert query[1:4] in detail(answer)


BOMB = (
    '<!DOCTYPE a [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;">]>'
    + queue_entry("<UserMetadata>&b;</UserMetadata>")
)
EXTERNAL = '<!DOCTYPE a [<!ENTITY a SYSTEM "file:///etc/passwd">]>' + queue_entry(
    "<UserMetadata>&a;</UserMetadata>"
)
DEEP = queue_entry("<a>" * 1000 + "</a>" * 1000)


@pytest.mark.parametrize(
    "body",
    [
        "",
        "not xml",
        "<entry>",
        "<feed/>",
        "<entry/>",
        entry(""),
        entry("<UnknownDescription/>"),
        entry("<SubscriptionDescription/>"),
        BOMB,
        EXTERNAL,
        DEEP,
        queue_entry("<x/>" * 50_000),
        b"\xff\xfe\x00garbage",
        b'<?xml version="1.0" encoding="no-such-encoding"?><entry/>',
        b"<entry>\x00</entry>",
        queue_entry("<LockDuration>five minutes</LockDuration>"),
        queue_entry("<LockDuration></LockDuration>"),
        queue_entry("<LockDuration>P" + "9" * 5000 + "D</LockDuration>"),
        queue_entry("<MaxDeliveryCount>" + "9" * 5000 + "</MaxDeliveryCount>"),
        queue_entry("<MaxDeliveryCount>ten</MaxDeliveryCount>"),
        queue_entry("<MaxDeliveryCount>true</MaxDeliveryCount>"),
        queue_entry("<RequiresSession>yes</RequiresSession>"),
        queue_entry("<Status>Sleeping</Status>"),
        queue_entry("<AuthorizationRules><AuthorizationRule/></AuthorizationRules>"),
    ],
    ids=lambda body: (body if isinstance(body, str) else body.decode("latin-1"))[-60:],
)
def test_a_body_that_makes_no_sense_is_refused(put, get, body):
    """400, a sentence, and no queue."""
    answer = put("/senseless", body)
    assert 400 == answer.status
    detail(answer)
    assert "Description" not in get("/senseless").text


def test_a_body_that_is_too_large_is_refused(put):
    """413, announced or not."""
    body = queue_entry("<UserMetadata>" + "x" * 1_100_000 + "</UserMetadata>")
    assert 413 == put("/large", body).status
    chunks = [body.encode()[start : start + 50_000] for start in range(0, len(body), 50_000)]
    assert 413 == put("/large", iter(chunks)).status


@pytest.mark.parametrize(
    "rule",
    [
        "<Filter/>",
        '<Filter i:type="MagicFilter"/>',
        '<Filter i:type="SqlFilter"/>',
        '<Filter i:type="CorrelationFilter"/>',
        '<Action i:type="MagicAction"/>',
        '<Action i:type="SqlRuleAction"/>',
        '<Filter i:type="CorrelationFilter"><Properties><x/></Properties></Filter>',
    ]
    + [
        '<Filter i:type="CorrelationFilter"><Properties><KeyValueOfstringanyType><Key>k</Key>'
        f'<Value i:type="x:{kind}">{text}</Value></KeyValueOfstringanyType></Properties></Filter>'
        for kind, text in {
            "int": "one",
            "long": "9" * 30,
            "double": "much",
            "boolean": "maybe",
            "dateTime": "tomorrow",
            "duration": "long",
            "guid": "x",
        }.items()
    ],
)
def test_a_rule_that_makes_no_sense_is_refused(put, get, rule):
    """400 before the core is asked."""
    put("/rule-topic", TOPIC)
    put("/rule-topic/subscriptions/s", SUBSCRIPTION)
    description = (
        '<RuleDescription xmlns:i="http://www.w3.org/2001/XMLSchema-instance" '
        f'xmlns:x="http://www.w3.org/2001/XMLSchema">{rule}</RuleDescription>'
    )
    answer = put("/rule-topic/subscriptions/s/rules/senseless", entry(description))
    assert 400 == answer.status
    detail(answer)


def test_a_rule_that_came_over_amqp_is_shown(harness: HttpHarness, put, get):
    """Numbers are of other types there, and no less numbers."""
    put("/amqp-topic", TOPIC)
    put("/amqp-topic/subscriptions/s", SUBSCRIPTION)
    properties = {"int": Int(-5), "long": Long(1 << 40), "unsigned": UInt(7), "text": Symbol("t")}
    rule = RuleDefinition("amqp", CorrelationFilter(properties=properties))
    path = "amqp-topic/Subscriptions/s"
    harness.ask(lambda peer, mark: AddRule(peer, mark, path, rule))
    shown = get("/amqp-topic/subscriptions/s/rules/amqp").text
    values = re.findall(r'type="d6p1:(\w+)"[^>]*>([^<]*)</Value>', shown)
    assert [("int", "-5"), ("long", str(1 << 40)), ("int", "7"), ("string", "t")] == values


def test_values_of_a_filter_keep_their_types(put, get):
    """A long is no int to a client that compares what it gets back with what it sent."""
    put("/typed-topic", TOPIC)
    put("/typed-topic/subscriptions/s", SUBSCRIPTION)
    typed = [("int", "12"), ("long", "12"), ("double", "12.0"), ("string", "12")]
    pairs = "".join(
        f'<KeyValueOfstringanyType><Key>@{kind}</Key><Value i:type="x:{kind}">{text}</Value>'
        "</KeyValueOfstringanyType>"
        for kind, text in typed
    )
    rule = (
        '<RuleDescription xmlns:i="http://www.w3.org/2001/XMLSchema-instance" '
        'xmlns:x="http://www.w3.org/2001/XMLSchema"><Filter i:type="SqlFilter">'
        f"<SqlExpression>a = @int AND b = @long</SqlExpression><Parameters>{pairs}</Parameters>"
        "</Filter></RuleDescription>"
    )
    assert 201 == put("/typed-topic/subscriptions/s/rules/typed", entry(rule)).status
    shown = get("/typed-topic/subscriptions/s/rules/typed").text
    assert typed == re.findall(r'type="d6p1:(\w+)"[^>]*>([^<]*)</Value>', shown)


PRECISE = [
    ("dateTime", "2024-01-02T03:04:05.1234567Z"),
    ("dateTime", "2024-01-02T03:04:05.123456Z"),
    ("dateTime", "2024-01-02T03:04:05Z"),
    ("dateTime", "2024-01-02T03:04:05.1234567"),
    ("duration", "PT1.1234567S"),
    ("duration", "-P1DT0.0000001S"),
    ("duration", "P10675199DT2H48M5.4775807S"),
    ("double", "INF"),
    ("double", "-INF"),
    ("double", "NaN"),
    ("double", "1.7976931348623157e+308"),
]


@pytest.mark.parametrize("part", ["CorrelationFilter", "SqlFilter", "SqlRuleAction"])
def test_values_of_a_rule_keep_their_precision(put, get, part):
    """Times and time spans to 100 ns, doubles as XML writes them: as .NET sends and compares them."""
    put("/precise", TOPIC)
    put("/precise/subscriptions/s", SUBSCRIPTION)
    pairs = "".join(
        f'<KeyValueOfstringanyType><Key>@p{number}</Key><Value i:type="x:{kind}">{text}</Value>'
        "</KeyValueOfstringanyType>"
        for number, (kind, text) in enumerate(PRECISE)
    )
    contents = {
        "CorrelationFilter": f'<Filter i:type="CorrelationFilter"><Properties>{pairs}</Properties>'
        "</Filter>",
        "SqlFilter": '<Filter i:type="SqlFilter"><SqlExpression>a &lt; @p0</SqlExpression>'
        f"<Parameters>{pairs}</Parameters></Filter>",
        "SqlRuleAction": '<Filter i:type="TrueFilter"/><Action i:type="SqlRuleAction"><SqlExpression>'
        f"SET a = @p4</SqlExpression><Parameters>{pairs}</Parameters></Action>",
    }
    rule = (
        '<RuleDescription xmlns:i="http://www.w3.org/2001/XMLSchema-instance" '
        f'xmlns:x="http://www.w3.org/2001/XMLSchema">{contents[part]}</RuleDescription>'
    )
    path = f"/precise/subscriptions/s/rules/{part}"
    created = put(path, entry(rule))
    assert 201 == created.status
    for answer in (created, get(path), get("/precise/subscriptions/s/rules")):
        shown = re.findall(r'type="d6p1:(\w+)"[^>]*>([^<]*)</Value>', answer.text)
        assert PRECISE == shown[: len(PRECISE)]


def test_an_entity_is_updated_by_its_own_kind_alone(put):
    """A topic's description does not fit a queue."""
    put("/kind", queue_entry())
    answer = put("/kind", TOPIC, **{"If-Match": "*"})
    assert 400 == answer.status
    assert "is a queue" in detail(answer)


def test_text_that_xml_cannot_carry_does_not_break_an_answer(harness: HttpHarness, get):
    """A control character may come in by another way; what leaves is still XML."""
    definition = QueueDefinition(user_metadata="a\x01b\ud800c\r\n<&>")
    harness.ask(lambda peer, mark: CreateEntity(peer, mark, "control", definition))
    read = get("/control").xml
    assert "a\ufffdb\ufffdc\r\n<&>" == read.findtext(f".//{SERVICE_BUS}UserMetadata")


def test_a_hostile_host_header_cannot_break_out_of_the_answer(put, get):
    """It is text like any other."""
    put("/hosted", queue_entry())
    answer = get("/hosted", Host='x"><script>')
    if answer.status == 200:
        assert 'http://x"><script>/hosted' in (answer.xml.findtext(f"{ATOM}id") or "")
    else:
        assert 400 == answer.status


# --- anything ----------------------------------------------------------------------------------

XML_PIECES = st.sampled_from(
    [
        *("<entry>", "</entry>", "<content>", "</content>", "<QueueDescription>", "<a/>", "&lt;"),
        *("</QueueDescription>", "<LockDuration>", "</LockDuration>", "PT1M", "<![CDATA[", "]]>"),
        *("<TopicDescription/>", "<!--", "-->", "<?x?>", "&x;", '<a b="', '"/>', "true", "-1"),
    ]
)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    body=st.one_of(st.binary(max_size=200), st.lists(XML_PIECES).map(lambda p: "".join(p).encode()))
)
def test_no_body_makes_the_broker_fail(harness: HttpHarness, body: bytes):
    """Any body is answered with success, or with a refusal and its sentence."""
    answer = request(harness.port, "PUT", "/anything", body)
    assert answer.status in {201, 400, 409}
    ET.fromstring(answer.body)


PATH_PIECES = st.sampled_from(
    [
        *("/", "%", ".", "$", "~", "%2F", "%00", "%ff", "%E2%82%AC", "..", "a", "subscriptions"),
        *("rules", "messages", "head", "$Resources", "queues", "health", "$DeadLetterQueue"),
        *("?", "&", "$skip=", "#"),
    ]
)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    path=st.lists(PATH_PIECES, max_size=8).map("".join),
    method=st.sampled_from(["GET", "PUT", "DELETE"]),
)
@example(path="//", method="GET")
@example(path="%00/subscriptions/%ff", method="DELETE")
def test_no_path_makes_the_broker_fail(harness: HttpHarness, path: str, method: str):
    """Any path is answered, and never with status 500."""
    answer = request(harness.port, method, "/x/" + path, queue_entry() if method == "PUT" else None)
    assert answer.status < 500


def test_an_entity_may_be_called_health(harness: HttpHarness, put, get):
    """With an api-version the probe's path is an entity's."""
    assert 201 == put("/health?api-version=2021-05", queue_entry()).status
    assert "health" == get("/health?api-version=2021-05").xml.findtext(f"{ATOM}title")
    assert b'{"status":"healthy","message":"Service is healthy."}' == get("/health").body
    view = harness.ask(lambda peer, mark: GetEntity(peer, mark, "health"))
    assert "health" == view.path
