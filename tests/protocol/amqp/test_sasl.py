"""The SASL preamble: who may pass, however the bytes arrive."""

from __future__ import annotations

import struct

import pytest

from protocol.amqp.sasl import MECHANISMS, PREAMBLE_MAX_BYTES, SaslServer, SaslStep
from protocol.codec import Described, Symbol, ULong, decode, encode
from tests.support.amqp_frames import HEADER, SASL_HEADER, Frame, frames, open_frame, raw_frame


def everyone(mechanism: str, user: str | None, password: str | None) -> bool:
    return True


def only_alice(mechanism: str, user: str | None, password: str | None) -> bool:
    return mechanism == "PLAIN" and user == "alice" and password == "s:cret"


def init(mechanism: str, response: bytes | None = None, hostname: str | None = None) -> bytes:
    fields = [Symbol(mechanism), response, hostname]
    return raw_frame(encode(Described(ULong(0x41), fields)), kind=1)


def outcomes(step: SaslStep) -> list[int]:
    return [frame[0] for frame in frames(step.output) if frame.name == "sasl-outcome"]


def test_the_mechanisms_are_offered_as_an_array_in_the_clouds_order():
    """Clients look for their mechanism in an array of symbols, some taking the first they know."""
    step = SaslServer(everyone).feed(SASL_HEADER)

    assert step.output.startswith(SASL_HEADER)
    (offer,) = frames(step.output)
    assert "sasl-mechanisms" == offer.name
    assert ["MSSBCBS", "PLAIN", "ANONYMOUS", "EXTERNAL"] == offer[0].items
    assert (None, False) == (step.rest, step.failed)


@pytest.mark.parametrize("mechanism", ["MSSBCBS", "ANONYMOUS", "EXTERNAL"])
@pytest.mark.parametrize("response", [None, b"", b"anonymous", b"\0RootManageSharedAccessKey"])
def test_mechanisms_without_credentials_ignore_the_response(mechanism, response):
    """Every SDK sends something else as a trace; none of it matters."""
    seen = []

    def record(*credentials: str | None) -> bool:
        seen.append(credentials)
        return True

    step = SaslServer(record).feed(SASL_HEADER + init(mechanism, response, "localhost"))

    assert [0] == outcomes(step)
    assert b"" == step.rest
    assert [(mechanism, None, None)] == seen


def test_everything_pipelined_behind_the_init_is_handed_on():
    """Java and Python do not wait for our side of the preamble."""
    pipelined = HEADER + open_frame()

    step = SaslServer(everyone).feed(SASL_HEADER + init("ANONYMOUS") + pipelined)

    assert pipelined == step.rest
    assert not step.failed


@pytest.mark.parametrize("response", [b"\0alice\0s:cret", b"someone\0alice\0s:cret"])
def test_plain_passes_with_the_right_password_and_any_authorization_identity(response):
    step = SaslServer(only_alice).feed(SASL_HEADER + init("PLAIN", response))

    assert [0] == outcomes(step)


@pytest.mark.parametrize(
    "response", [None, b"", b"alice", b"\0alice\0wrong", b"\0alice\0s:cret\0more", b"\0\xff\0x"]
)
def test_plain_with_anything_else_is_refused_and_closed(response):
    step = SaslServer(only_alice).feed(SASL_HEADER + init("PLAIN", response))

    assert [1] == outcomes(step)
    assert step.failed
    assert step.rest is None


def test_a_mechanism_may_be_switched_off_by_who_authenticates():
    step = SaslServer(only_alice).feed(SASL_HEADER + init("ANONYMOUS"))

    assert [1] == outcomes(step)
    assert step.failed


def test_an_unknown_mechanism_is_refused():
    step = SaslServer(everyone).feed(SASL_HEADER + init("SCRAM-SHA-256"))

    assert [1] == outcomes(step)
    assert step.failed


def test_a_client_without_sasl_passes_through():
    """rhea with no user name begins with the bare AMQP header."""
    step = SaslServer(everyone).feed(HEADER + open_frame())

    assert SaslStep(b"", HEADER + open_frame(), failed=False) == step


@pytest.mark.parametrize(
    "header",
    [b"AMQP\x02\x01\x00\x00", b"AMQP\x00\x00\x09\x01", b"AMQP\x03\x01\x01\x00", b"GET / HT", b"\0"],
    ids=["tls", "0-9-1", "other revision", "http", "garbage"],
)
def test_an_unknown_header_is_answered_with_ours_and_closed(header):
    """AMQP 1.0 §2.2: so that a client learns which header the broker supports."""
    step = SaslServer(everyone).feed(header)

    assert SaslStep(SASL_HEADER, None, failed=True) == step


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_every_split_of_the_preamble_means_the_same(mechanism):
    """Two reads split anywhere, and byte by byte, end like one read."""
    preamble = SASL_HEADER + init(mechanism, b"\0alice\0s:cret") + HEADER + b"rest"
    whole = SaslServer(everyone).feed(preamble)
    for cut in range(1, len(preamble)):
        assert whole == fed(preamble[:cut], preamble[cut:])
    assert whole == fed(*(preamble[i : i + 1] for i in range(len(preamble))))


def fed(*parts: bytes) -> SaslStep:
    """All parts fed to one server, its output joined, what follows the preamble appended."""
    server = SaslServer(everyone)
    output = b""
    for number, part in enumerate(parts):
        step = server.feed(part)
        output += step.output
        if step.rest is not None or step.failed:
            rest = None if step.rest is None else step.rest + b"".join(parts[number + 1 :])
            return SaslStep(output, rest, step.failed)
    return SaslStep(output, None, failed=False)


@pytest.mark.parametrize(
    "body",
    [
        struct.pack(">IBBH", PREAMBLE_MAX_BYTES + 1, 2, 1, 0),
        struct.pack(">IBBH", 0xFFFFFFFF, 2, 1, 0),
        struct.pack(">IBBH", 7, 2, 1, 0),
        struct.pack(">IBBH", 0, 0, 0, 0),
        struct.pack(">IBBH", 16, 1, 1, 0),
        struct.pack(">IBBH", 16, 200, 1, 0),
        struct.pack(">IBBH", 16, 2, 0, 0),
    ],
    ids=["too long", "absurd", "too short", "zeros", "offset short", "offset long", "not sasl"],
)
def test_an_impossible_frame_ends_the_preamble(body):
    """As soon as its header is there: nothing is gathered for it."""
    step = SaslServer(everyone).feed(SASL_HEADER + body)

    assert step.failed
    assert step.rest is None


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xff\xff\xff",
        b"\x00\x53\x41",
        b"\x00\x53\x41\xc0\xff\x01",
        encode(Described(ULong(0x44), [Symbol("ANONYMOUS")])),
        encode(Described(ULong(0x41), [])),
        encode(Described(ULong(0x41), [b"ANONYMOUS"])),
        encode(Described(ULong(0x41), None)),
    ],
)
def test_a_malformed_init_is_refused(body):
    step = SaslServer(everyone).feed(SASL_HEADER + raw_frame(body, kind=1))

    assert [1] == outcomes(step)
    assert step.failed


def test_nothing_is_taken_after_the_end():
    server = SaslServer(only_alice)
    server.feed(SASL_HEADER + init("ANONYMOUS"))

    assert SaslStep(b"", None, failed=True) == server.feed(init("PLAIN", b"\0alice\0s:cret"))


def test_the_outcome_is_a_ubyte():
    """Strict clients cast the code to an unsigned byte."""
    step = SaslServer(everyone).feed(SASL_HEADER + init("ANONYMOUS"))

    assert Frame("sasl-outcome", [0]) == frames(step.output)[-1]
    assert "UByte" == type(frames(step.output)[-1][0]).__name__
    assert b"\x00\x53\x44\xc0\x03\x01\x50\x00" == step.output[-8:]
    assert Described(ULong(0x44), [0]) == decode(step.output[-8:])[0]
