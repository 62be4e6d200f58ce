"""The AMQP value codec against itself, against Proton and against the Python SDK."""

from __future__ import annotations

import struct
from contextlib import suppress
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any
from uuid import UUID

import proton
import pytest
from azure.servicebus._pyamqp._decode import _DECODE_BY_CONSTRUCTOR
from azure.servicebus._pyamqp._encode import encode_value
from hypothesis import example, given
from hypothesis import strategies as st

from broker.core.contract.errors import UndecodableMessage
from protocol.codec import (
    Array,
    ArrayCode,
    Byte,
    Char,
    Described,
    Float,
    Int,
    Long,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
    decode,
    encode,
    encode_map_entries,
    encode_string,
    encode_symbol,
    map_entries,
    value_end,
)
from tests.support.amqp_values import scalars, texts, typed, values

UNDESCRIBED: Any = proton.UNDESCRIBED
GUID = UUID("00112233-4455-6677-8899-aabbccddeeff")


@given(values)
def test_a_value_survives_encoding_and_decoding(value):
    """Decoding returns the same value of the same type, and ends where the encoding ends."""
    encoded = encode(value)
    decoded, end = decode(encoded)
    assert typed(value) == typed(decoded)
    assert len(encoded) == end == value_end(encoded, 0)


@given(values, st.binary(max_size=5), st.binary(max_size=5))
def test_a_value_is_decoded_from_the_middle_of_other_bytes(value, before, after):
    """The bytes before and after a value do not change it."""
    encoded = encode(value)
    decoded, end = decode(before + encoded + after, len(before))
    assert typed(value) == typed(decoded)
    assert len(before) + len(encoded) == end


@pytest.mark.parametrize(
    ("value", "hexadecimal"),
    [
        (None, "40"),
        (True, "41"),
        (False, "42"),
        (UInt(0), "43"),
        (UInt(255), "52ff"),
        (UInt(256), "7000000100"),
        (ULong(0), "44"),
        (ULong(1), "5301"),
        (ULong(256), "800000000000000100"),
        (Int(-1), "54ff"),
        (Int(200), "71000000c8"),
        (Long(-128), "5580"),
        (Long(128), "810000000000000080"),
        (UByte(4), "5004"),
        (Byte(-4), "51fc"),
        (UShort(1), "600001"),
        (Short(-1), "61ffff"),
        (Float(1.5), "723fc00000"),
        (1.5, "823ff8000000000000"),
        (Char("é"), "73000000e9"),
        (Timestamp(1), "830000000000000001"),
        (GUID, "9800112233445566778899aabbccddeeff"),
        (b"ab", "a0026162"),
        ("é", "a102c3a9"),
        (Symbol("ab"), "a3026162"),
        ([], "45"),
        ([None], "c0020140"),
        ({}, "c10100"),
        ({"a": None}, "c10502a1016140"),
        (Array(ArrayCode.UUID, []), "e0020098"),
        (Array(ArrayCode.LONG, [1]), "e00a01810000000000000001"),
        (Array(ArrayCode.TIMESTAMP, [1]), "e00a01830000000000000001"),
        (Array(ArrayCode.STRING, ["a"]), "e00701b10000000161"),
        (Described(ULong(0x70), []), "00537045"),
    ],
)
def test_encodings_are_those_of_the_specification(value, hexadecimal):
    """The shortest form outside arrays, the full width inside them."""
    assert hexadecimal == encode(value).hex()


@pytest.mark.parametrize(
    ("hexadecimal", "value"),
    [
        ("5600", False),
        ("5601", True),
        ("70000000ff", UInt(255)),
        ("8000000000000000ff", ULong(255)),
        ("81ffffffffffffffff", Long(-1)),
        ("b10000000161", "a"),
        ("b30000000161", Symbol("a")),
        ("b00000000161", b"a"),
        ("d0000000050000000140", [None]),
        ("d10000000400000000", {}),
        ("e0020241", Array(ArrayCode.BOOLEAN, [True, True])),
        ("e004025501ff", Array(ArrayCode.LONG, [Long(1), Long(-1)])),
        ("f000000006000000015501", Array(ArrayCode.LONG, [Long(1)])),
        ("e0020143", Array(0x70, [UInt(0)])),
    ],
)
def test_every_form_of_a_value_is_understood(hexadecimal, value):
    """Clients choose freely among the encodings of a type."""
    assert typed(value) == typed(decode(bytes.fromhex(hexadecimal))[0])


@pytest.mark.parametrize(
    ("value", "decoded"),
    [
        (5, Int(5)),
        (2**31, Long(2**31)),
        (-(2**31) - 1, Long(-(2**31) - 1)),
        (2**63, ULong(2**63)),
        (datetime(2024, 1, 2, 3, 4, 5, 678_999, tzinfo=UTC), Timestamp(1_704_164_645_678)),
        (datetime(2024, 1, 2, 3, 4, 5), Timestamp(1_704_164_645_000)),  # noqa: DTZ001
        (datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC), Timestamp(-1000)),
        ((1, "a"), [Int(1), "a"]),
        (bytearray(b"x"), b"x"),
        (HTTPStatus.OK, Int(200)),
    ],
)
def test_plain_python_values_take_the_type_they_stand_for(value, decoded):
    assert typed(decoded) == typed(decode(encode(value))[0])


@pytest.mark.parametrize(
    "value", [2**64, -(2**63) - 1, UInt(-1), UByte(256), Float(1e300), "\ud800"]
)
def test_a_value_that_does_not_fit_its_type_is_not_encoded(value):
    with pytest.raises(ValueError):
        encode(value)


def test_a_type_without_encoding_is_named():
    with pytest.raises(TypeError, match="complex"):
        encode(1j)


# --- against other implementations -------------------------------------------------------------


def _proton(value):
    """Returns Proton's value for a decoded value."""
    kinds = {
        UByte: proton.ubyte,
        UShort: proton.ushort,
        UInt: proton.uint,
        ULong: proton.ulong,
        Byte: proton.byte,
        Short: proton.short,
        Int: proton.int32,
        Timestamp: proton.timestamp,
        Float: proton.float32,
        Char: proton.char,
        Symbol: proton.symbol,
    }
    return kinds[type(value)](value) if type(value) in kinds else value


PROTON_SCALARS = scalars.filter(
    lambda value: (
        not isinstance(value, float | bytes)
        and type(value).__name__ != "Decimal"
        and not (isinstance(value, Symbol) and not value.isascii())
        and not (isinstance(value, ULong | Timestamp) and not 0 <= value < 2**63)
    )
)


@given(PROTON_SCALARS)
def test_proton_reads_what_we_write(value):
    """Proton decodes our scalars to the same value of the same type."""
    data = proton.Data()
    data.decode(encode(value))
    data.rewind()
    data.next()
    theirs = data.get_object()
    assert _proton(value) == theirs
    if type(value) not in (Long, UUID):
        assert type(_proton(value)) is type(theirs)


@given(PROTON_SCALARS)
def test_we_read_what_proton_writes(value):
    """We decode Proton's scalars to the same value of the same type."""
    data = proton.Data()
    data.put_object(int(value) if type(value) is Long else _proton(value))
    decoded, _ = decode(bytes(data.encode()))
    assert typed(value) == typed(decoded)


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1))
def test_arrays_agree_with_proton(numbers):
    """An array of longs means the same to Proton in both directions."""
    data = proton.Data()
    data.put_object(proton.Array(UNDESCRIBED, proton.Data.LONG, *numbers))
    assert Array(ArrayCode.LONG, numbers) == decode(bytes(data.encode()))[0]
    back = proton.Data()
    back.decode(encode(Array(ArrayCode.LONG, numbers)))
    back.rewind()
    back.next()
    theirs: Any = back.get_object()
    assert numbers == list(theirs.elements)


@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers(-(2**31), 2**31 - 1)
        | texts
        | st.uuids()
        | st.binary(max_size=300),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
        max_leaves=8,
    )
)
def test_the_python_sdk_reads_what_we_write(value):
    """The SDK's own decoder gives back plain values, compound ones included."""
    encoded = memoryview(encode(value))
    rest, theirs = _DECODE_BY_CONSTRUCTOR[encoded[0]](encoded[1:])
    as_bytes = _texts_to_bytes(value)
    assert as_bytes == theirs
    assert 0 == len(rest)


def _texts_to_bytes(value):
    """The SDK leaves texts encoded."""
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, list):
        return [_texts_to_bytes(item) for item in value]
    if isinstance(value, dict):
        return {_texts_to_bytes(key): _texts_to_bytes(item) for key, item in value.items()}
    return value


@pytest.mark.parametrize(
    ("kind", "value", "decoded"),
    [
        ("INT", 5, Int(5)),
        ("LONG", -5, Long(-5)),
        ("UINT", 5, UInt(5)),
        ("ULONG", 2**40, ULong(2**40)),
        ("UBYTE", 5, UByte(5)),
        ("SHORT", -5, Short(-5)),
        ("FLOAT", 1.5, Float(1.5)),
        ("DOUBLE", 1.5, 1.5),
        ("TIMESTAMP", 5, Timestamp(5)),
        ("UUID", GUID, GUID),
        ("BINARY", b"x" * 300, b"x" * 300),
        ("STRING", "é", "é"),
        ("SYMBOL", "s", Symbol("s")),
        ("BOOL", True, True),
    ],
)
def test_we_read_what_the_python_sdk_writes(kind, value, decoded):
    output = bytearray()
    encode_value(output, {"TYPE": kind, "VALUE": value})
    assert typed(decoded) == typed(decode(bytes(output))[0])


# --- maps whose values stay encoded -------------------------------------------------------------


@given(st.dictionaries(texts, scalars, max_size=6), st.sampled_from([encode_string, encode_symbol]))
def test_map_entries_are_taken_apart_and_put_together(entries, key_encoder):
    """Values stay encoded, and keys may have any encoding."""
    encoded = {key: encode(value) for key, value in entries.items()}
    data = encode_map_entries(encoded, key_encoder)
    assert encoded == map_entries(b"xx" + data, 2)
    decoded: Any = decode(data)[0]
    assert typed([*entries.values()]) == typed([*decoded.values()])


def test_a_null_map_has_no_entries():
    assert {} == map_entries(b"\x40")


@pytest.mark.parametrize(
    "hexadecimal",
    ["", "45", "c00100", "c1", "c10301a10161", "c10402540140", "c10602a1016140", "c10402a10161"],
)
def test_a_malformed_map_has_no_entries_to_give(hexadecimal):
    """Lists, odd counts, keys that are no text, and sizes that lie are refused."""
    with pytest.raises(UndecodableMessage):
        map_entries(bytes.fromhex(hexadecimal))


# --- hostile input ------------------------------------------------------------------------------


def _nested(depth):
    data = b"\x40"
    for _ in range(depth):
        data = b"\xd0" + struct.pack(">II", len(data) + 4, 1) + data
    return data


@given(st.binary(max_size=200))
@example(b"\x00" * 5000)
@example(_nested(5000))
@example(b"\xd0\x00\x00\x00\x04\xff\xff\xff\xff")
@example(b"\xf0\x00\x00\x00\x05\xff\xff\xff\xff\x40")
@example(b"\xf0\x00\x00\x00\x05\xff\xff\xff\xff\x45")
@example(b"\xb0\xff\xff\xff\xff")
@example(b"\xc1\x04\x02\x45\x40\x40")
@example(b"\x73\xff\xff\xff\xff")
def test_no_bytes_break_the_decoder(data):
    """Bytes decode, or are refused as undecodable; nothing else happens."""
    try:
        value, end = decode(data)
    except UndecodableMessage:
        return
    assert 0 < end <= len(data)
    assert typed(value) == typed(decode(encode(value))[0])


@given(st.binary(max_size=60))
def test_no_bytes_break_the_walk_over_a_value(data):
    with suppress(UndecodableMessage):
        assert 0 < value_end(data, 0) <= len(data)


@given(values, st.data())
def test_a_truncated_value_is_refused(value, data):
    """No prefix of an encoding passes for the value."""
    encoded = encode(value)
    size = data.draw(st.integers(0, len(encoded) - 1))
    with pytest.raises(UndecodableMessage):
        decode(encoded[:size])
    with pytest.raises(UndecodableMessage):
        value_end(encoded[:size], 0)


def test_nesting_is_bounded():
    """64 levels are read, more are refused."""
    assert decode(_nested(64))
    with pytest.raises(UndecodableMessage, match="nested"):
        decode(_nested(65))
