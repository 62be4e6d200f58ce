"""The row of a start has the first answers of the broker checked: counts, and messages by their numbers."""

from __future__ import annotations

from tests.bench.cases.ready import wrong_first_answers
from tests.bench.load_program import run_program
from tests.bench.roles import Load
from tests.support.server import BrokerProcess


def test_first_answers_are_checked():
    """With the messages that are there, and not with one more."""
    with BrokerProcess(config={"queues": {"backlog": {}}}) as broker:
        load = Load(port=broker.amqp_port, address="backlog", count=300)
        assert run_program("send", load)[0]["is_clean"]
        assert [] == wrong_first_answers(broker, "backlog", 300)
        assert [
            "the count is 300 and not 301",
            "the message at 301 has the number 0 and not 301",
        ] == wrong_first_answers(broker, "backlog", 301)
