"""Generated AMQP values of every type, for property tests of whatever reads or writes them.

Owns the strategies and the comparison; knows the codec's types, not its encodings.
Every generated value can be encoded, and equals itself after decoding.
"""

from __future__ import annotations

import math
from dataclasses import fields, is_dataclass

from hypothesis import strategies as st

from protocol.codec import (
    Array,
    ArrayCode,
    Byte,
    Char,
    Decimal,
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
)

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20) | st.just("long" * 80)
binaries = st.binary(max_size=20) | st.just(bytes(300))


def _integers(kind, bits, *, signed):
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    edges = [value for value in (low, high, 0, -1, 127, 128, 255, 256) if low <= value <= high]
    return (st.integers(low, high) | st.sampled_from(edges)).map(kind)


longs = _integers(Long, 64, signed=True)
timestamps = _integers(Timestamp, 64, signed=True)

scalars = st.one_of(
    st.none(),
    st.booleans(),
    _integers(UByte, 8, signed=False),
    _integers(UShort, 16, signed=False),
    _integers(UInt, 32, signed=False),
    _integers(ULong, 64, signed=False),
    _integers(Byte, 8, signed=True),
    _integers(Short, 16, signed=True),
    _integers(Int, 32, signed=True),
    longs,
    timestamps,
    st.floats(width=32).map(Float),
    st.floats(),
    st.characters(exclude_categories=["Cs"]).map(Char),
    st.sampled_from([4, 8, 16])
    .flatmap(lambda size: st.binary(min_size=size, max_size=size))
    .map(Decimal),
    st.uuids(),
    binaries,
    texts,
    texts.map(Symbol),
)

arrays = st.one_of(
    st.lists(st.uuids()).map(lambda items: Array(ArrayCode.UUID, items)),
    st.lists(longs).map(lambda items: Array(ArrayCode.LONG, items)),
    st.lists(timestamps).map(lambda items: Array(ArrayCode.TIMESTAMP, items)),
    st.lists(texts).map(lambda items: Array(ArrayCode.STRING, items)),
    st.lists(texts.map(Symbol)).map(lambda items: Array(ArrayCode.SYMBOL, items)),
    st.lists(st.booleans()).map(lambda items: Array(ArrayCode.BOOLEAN, items)),
    st.lists(st.none(), max_size=10).map(lambda items: Array(ArrayCode.NULL, items)),
    st.lists(longs).map(lambda items: Array(ArrayCode.LONG, items, Symbol("a:long"))),
)

values = st.recursive(
    scalars | arrays,
    lambda inner: st.one_of(
        st.lists(inner, max_size=5),
        st.dictionaries(texts | texts.map(Symbol) | longs, inner, max_size=5),
        st.builds(Described, texts.map(Symbol) | longs.map(abs).map(ULong), inner),
        st.lists(st.lists(inner, max_size=3), max_size=3).map(lambda items: Array(0xD0, items)),
        st.lists(st.dictionaries(texts, inner, max_size=3), max_size=3).map(
            lambda items: Array(0xD1, items)
        ),
        st.lists(arrays, max_size=3).map(lambda items: Array(0xF0, items)),
    ),
    max_leaves=12,
)


def typed(value: object) -> object:
    """Returns a value together with its types, so that `==` compares the types as well, and NaN
    equals itself."""
    if isinstance(value, dict):
        return [(typed(key), typed(item)) for key, item in value.items()]
    if isinstance(value, list):
        return [typed(item) for item in value]
    if is_dataclass(value):
        parts = [typed(getattr(value, field.name)) for field in fields(value)]
        return (type(value).__name__, *parts)
    if isinstance(value, float) and math.isnan(value):
        return (type(value).__name__, "nan")
    return (type(value).__name__, value)
