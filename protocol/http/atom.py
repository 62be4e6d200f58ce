"""Writes Atom entries and feeds, and parses the entries in requests.

Knows XML, but no entities. Document types, XML entities and deep nesting are refused. Output is always well-formed
XML.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple
from xml.parsers import expat

from broker.core.contract.errors import ArgumentError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from uuid import UUID

ATOM = "http://www.w3.org/2005/Atom"
SERVICE_BUS = "http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"
SCHEMA_INSTANCE = "http://www.w3.org/2001/XMLSchema-instance"
SCHEMA = "http://www.w3.org/2001/XMLSchema"

CONTENT_TYPE_ENTRY = "application/atom+xml;type=entry;charset=utf-8"
CONTENT_TYPE_FEED = "application/atom+xml;type=feed;charset=utf-8"

BODY_MAX_BYTES = 1024 * 1024
"""Far above the longest description."""
DEPTH_MAX = 16
"""The deepest description has seven levels: entry, content, description, filter, properties, pair, value."""
ELEMENTS_MAX = 20_000

NEVER = "0001-01-01T00:00:00Z"

_TYPE = f"{SCHEMA_INSTANCE} type"
_NIL = f"{SCHEMA_INSTANCE} nil"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

# XML 1.0 §2.2: controls, surrogates and two others may not occur even when escaped.
_ESCAPES = dict.fromkeys([*range(0x20), *range(0xD800, 0xE000), 0xFFFE, 0xFFFF], "\ufffd")
_ESCAPES |= str.maketrans({"\t": "\t", "\n": "\n", "\r": "&#13;"})
_ESCAPES |= str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;"})


class _Malformed(ArgumentError):
    def __init__(self, why: str) -> None:
        super().__init__(f"The request body is not a valid Atom entry: {why}.")


# --- in --------------------------------------------------------------------------------------


@dataclass(slots=True)
class Element:
    """An XML element by its local name: no SDK uses one name in two namespaces."""

    name: str
    type: str = ""
    """`i:type` without its prefix."""
    is_nil: bool = False
    text: str = ""
    children: list[Element] = field(default_factory=list)

    def child(self, name: str) -> Element | None:
        """Returns the first child with a name."""
        return next((child for child in self.children if child.name == name), None)

    def text_of(self, name: str) -> str | None:
        """Returns the text of a child; None if it is missing or nil."""
        child = self.child(name)
        return None if child is None or child.is_nil else child.text


def parse(body: bytes) -> Element:
    """Returns the root of the document in a request. Raises `ArgumentError`."""
    reader = _Reader()
    parser = expat.ParserCreate(namespace_separator=" ")
    parser.buffer_text = True
    parser.StartDoctypeDeclHandler = reader.refuse_document_type
    parser.StartElementHandler = reader.start
    parser.EndElementHandler = reader.end
    parser.CharacterDataHandler = reader.characters
    try:
        parser.Parse(body, True)
    except (expat.ExpatError, ValueError, LookupError) as error:
        raise _Malformed(str(error)) from None
    return reader.root.children[0]


def description(body: bytes, name: str) -> Element:
    """Returns the description in an entry, which must have this name. Raises `ArgumentError`."""
    found = any_description(body)
    if found.name != name:
        raise _Malformed(f"it contains a {found.name}, but a {name} is required")
    return found


def any_description(body: bytes) -> Element:
    """Returns the description in an entry. Raises `ArgumentError`."""
    entry = parse(body)
    content = entry.child("content") if entry.name == "entry" else None
    if content is None or not content.children:
        raise _Malformed("an entry with a content element that holds a description is expected")
    return content.children[0]


class _Reader:
    """Builds elements from the events of expat."""

    def __init__(self) -> None:
        self.root = Element("")
        self._open = [self.root]
        self._texts: list[list[str]] = [[]]
        self._count = 0

    def refuse_document_type(self, *_: object) -> None:
        raise _Malformed("document types are not allowed")

    def start(self, name: str, attributes: dict[str, str]) -> None:
        if len(self._open) > DEPTH_MAX:
            raise _Malformed("it is nested too deeply")
        self._count += 1
        if self._count > ELEMENTS_MAX:
            raise _Malformed("it has too many elements")
        element = Element(
            _local(name),
            type=attributes.get(_TYPE, "").rpartition(":")[2],
            is_nil=attributes.get(_NIL) in {"true", "1"},
        )
        self._open[-1].children.append(element)
        self._open.append(element)
        self._texts.append([])

    def end(self, _name: str) -> None:
        self._open.pop().text = "".join(self._texts.pop())

    def characters(self, text: str) -> None:
        self._texts[-1].append(text)


def _local(name: str) -> str:
    return name.rpartition(" ")[2]


# --- out -------------------------------------------------------------------------------------


def escape(text: str) -> str:
    """Returns text as XML character data or attribute value. Characters that XML does not allow are replaced."""
    return text.translate(_ESCAPES)


def element(name: str, text: str) -> str:
    """Returns an element with this text, escaped."""
    return f"<{name}>{escape(text)}</{name}>"


def timestamp(time_ms: int) -> str:
    """Returns a time as ISO 8601 in UTC; for 0 the time by which the service says never."""
    if time_ms == 0:
        return NEVER
    moment = _EPOCH + timedelta(milliseconds=time_ms)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Entry(NamedTuple):
    """An Atom entry: `name` is its title, `href` its absolute address."""

    name: str
    href: str
    author: str
    created_time_ms: int
    updated_time_ms: int
    content: str
    """The description, as XML."""


def entry(one: Entry) -> str:
    """Returns an entry document."""
    href = escape(one.href)
    # The JavaScript SDK reads names from the id, those of .NET, Go and Java from the title.
    return (
        f'<entry xmlns="{ATOM}"><id>{href}</id><title type="text">{escape(one.name)}</title>'
        f"<published>{timestamp(one.created_time_ms)}</published>"
        f"<updated>{timestamp(one.updated_time_ms)}</updated>"
        f"<author><name>{escape(one.author)}</name></author>"
        f'<link rel="self" href="{href}"/>'
        f'<content type="application/xml">{one.content}</content></entry>'
    )


def feed(
    title: str, href: str, next_href: str | None, now_ms: int, entries: Iterable[Entry]
) -> str:
    """Returns a feed document."""
    links = f'<link rel="self" href="{escape(href)}"/>'
    if next_href is not None:
        # The Python SDK takes the second of exactly two links for the next page.
        links += f'<link rel="next" href="{escape(next_href)}"/>'
    return (
        f'<feed xmlns="{ATOM}"><title type="text">{escape(title)}</title>'
        f"<id>{escape(href)}</id><updated>{timestamp(now_ms)}</updated>{links}"
        f"{''.join(entry(one) for one in entries)}</feed>"
    )


def public_feed(now_ms: int, feed_id: UUID) -> str:
    """Returns the empty feed of the service for a missing entity. The Go SDK recognises it by its title."""
    return (
        f'<feed xmlns="{ATOM}"><title type="text">Publicly Listed Services</title>'
        '<subtitle type="text">This is the list of publicly-listed services currently available.'
        f"</subtitle><id>uuid:{feed_id};id=1</id><updated>{timestamp(now_ms)}</updated>"
        "<generator>Service Bus 1.1</generator></feed>"
    )


def described(name: str, content: str) -> str:
    """Returns a description element, without prefix, in its own default namespace, with `i` declared on it."""
    return f'<{name} xmlns="{SERVICE_BUS}" xmlns:i="{SCHEMA_INSTANCE}">{content}</{name}>'
