"""The messages of a session keep their order, however they come and go."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from broker.core.contract.message import Message
from broker.core.queues.session_messages import SessionMessages


def numbered(number: int) -> Message:
    message = Message(b"")
    message.sequence_number = number
    return message


@settings(deadline=None)
@given(st.data())
def test_it_is_a_sorted_list(data):
    """Messages arrive at the end or late, and leave from the beginning or from anywhere, alone or together."""
    messages, expected, last = SessionMessages(), [], 0
    for _ in range(data.draw(st.integers(1, 12))):
        for _ in range(data.draw(st.integers(0, 60))):
            last += 2
            expected.append(numbered(last))
            messages.add(expected[-1])
        if data.draw(st.booleans()) and expected:
            number = data.draw(st.sampled_from(expected)).sequence_number - 1
            if number > 0 and all(one.sequence_number != number for one in expected):
                late = [numbered(number)]
                messages.add_late(late)
                expected = sorted(expected + late, key=lambda one: one.sequence_number)
        count = data.draw(st.integers(0, len(expected)))
        left = expected[:count]
        if data.draw(st.booleans()) and expected:
            left = data.draw(st.lists(st.sampled_from(expected), unique=True, max_size=20))
        messages.remove(left)
        expected = [one for one in expected if one not in left]
        assert expected == list(messages.from_number(0))
        assert len(expected) == len(messages)
        number = data.draw(st.integers(0, last))
        from_number = list(messages.from_number(number))
        assert [m for m in expected if m.sequence_number >= number] == from_number


def test_messages_that_left_are_freed():
    """Otherwise their bodies would stay in memory as long as the session has others."""
    messages = SessionMessages()
    ours = [numbered(number) for number in range(200)]
    for message in ours:
        messages.add(message)
    for start in range(0, 150, 10):
        messages.remove(ours[start : start + 10])
        gone = {id(message) for message in ours[: start + 10]}
        assert gone.isdisjoint(map(id, messages._messages))
