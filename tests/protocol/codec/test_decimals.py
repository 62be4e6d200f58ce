"""Decimals: what they say, and what the service makes of them."""

from __future__ import annotations

from decimal import Decimal as Number

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus._pyamqp._decode import decode_payload
from hypothesis import given
from hypothesis import strategies as st

from protocol.codec import Decimal, Described, Symbol, ULong, decode, encode, encode_message
from protocol.codec.decimals import number_of, service_decimal
from tests.support.amqp_messages import DATA, delivered, encoded, sdk_encoded, taken
from tests.support.amqp_values import typed

# Encoded by the book (IEEE 754-2008, binary integer decimals), each in three widths.
BY_THE_BOOK = {
    "0": ("32800000", "31c0000000000000", "30400000000000000000000000000000"),
    "-5": ("b2800005", "b1c0000000000005", "b0400000000000000000000000000005"),
    "1.2345": ("30803039", "3140000000003039", "30380000000000000000000000003039"),
    "1E+3": ("34000001", "3220000000000001", "30460000000000000000000000000001"),
    "9.999999": ("6bf8967f", "310000000098967f", "3034000000000000000000000098967f"),
    "-0.01": ("b1800001", "b180000000000001", "b03c0000000000000000000000000001"),
}
FROM_THE_LIBRARY = {
    "0": "0c400000000000000000000000000000",
    "-5": "8c400000000000000000000000000005",
    "1.2345": "0c380000000000000000000000003039",
    "1E+3": "0c4000000000000000000000000003e8",
    "9.999999": "0c34000000000000000000000098967f",
    "-0.01": "8c3c0000000000000000000000000001",
}
"""The same as Microsoft's AMQP library writes them: the exponent's bits from 9 on come first."""


def read(raw: bytes) -> Number:
    number = number_of(raw)
    assert number is not None
    digits = tuple(map(int, str(number.coefficient)))
    return Number((int(number.is_negative), digits, number.exponent))


@pytest.mark.parametrize("text", BY_THE_BOOK)
def test_decimals_of_every_width_are_read(text):
    for raw in map(bytes.fromhex, BY_THE_BOOK[text]):
        assert Number(text) == read(raw)
    assert Number(text) == read(bytes.fromhex(FROM_THE_LIBRARY[text]))


@pytest.mark.parametrize("text", BY_THE_BOOK)
def test_decimals_are_sent_on_as_microsoft_s_library_writes_them(text):
    """Decimals of any width: .NET has one type for all of them, and the Python SDK reads no other
    form."""
    expected = b"\x94" + bytes.fromhex(FROM_THE_LIBRARY[text])
    for raw in (*BY_THE_BOOK[text], FROM_THE_LIBRARY[text]):
        assert expected == service_decimal(encode(Decimal(bytes.fromhex(raw))))


@pytest.mark.parametrize(
    "raw",
    [
        "78000000",  # infinity
        "7c000000",  # not a number
        "7800000000000000",
        "7c000000000000000000000000000000",
        "5f8fffff",  # beyond what a .NET decimal holds
        "00000001",
        "3041ffffffffffffffffffffffffffff",
        "00000000000000000000000000000001",
        "5ffe0000000000000000000000000001",
    ],
)
def test_what_the_library_cannot_hold_stays_as_it_was(raw):
    assert service_decimal(encode(Decimal(bytes.fromhex(raw)))) is None


def test_a_tiny_zero_is_a_zero():
    """And costs no time: the exponent is not counted down."""
    (encoding,) = {service_decimal(b"\x94" + bytes(16)), service_decimal(b"\x74" + bytes(4))}
    assert encoding is not None
    assert 0 == read(encoding[1:])


@given(st.binary(min_size=4, max_size=4) | st.binary(min_size=8, max_size=8))
def test_the_number_survives(raw):
    """Where the service writes a decimal anew, it says the same."""
    encoding = service_decimal(encode(Decimal(raw)))
    if encoding is not None:
        assert read(raw) == read(encoding[1:])
        assert encoding == service_decimal(encoding)


@given(
    st.decimals(
        allow_nan=False, allow_infinity=False, places=4, min_value=-400_000, max_value=400_000
    )
)
def test_the_python_sdk_reads_back_what_it_sent(value):
    """Its own encoding it cannot read."""
    message = taken(sdk_encoded(ServiceBusMessage("x", application_properties={"d": value})))
    received = decode_payload(memoryview(encode_message(message)))
    assert {b"d": value} == received.application_properties


def test_other_properties_stay_as_they_are_beside_a_decimal():
    """And one in a list is left alone: the service takes simple values only."""
    inside = [Decimal(bytes.fromhex(BY_THE_BOOK["0"][2]))]
    properties = {
        "a": "text",
        "d": Decimal(bytes.fromhex(BY_THE_BOOK["1.2345"][1])),
        "list": inside,
        "described": Described(Symbol("com.microsoft:timespan"), ULong(5)),
    }
    message = taken(encoded(Described(ULong(0x74), properties), DATA))
    properties["d"] = Decimal(bytes.fromhex(FROM_THE_LIBRARY["1.2345"]))
    assert typed(properties) == typed(delivered(message)[0x74])
    assert b"body" == delivered(message)[0x75]
    assert typed(Decimal(b"x" * 16)) == typed(decode(encode(Decimal(b"x" * 16)))[0])
