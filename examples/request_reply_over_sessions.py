"""Request and reply. Each requester waits for its reply in its own session.

    make run ARGS="--config examples/entities.yaml"     # declares the queues `requests` and `replies`
    python examples/request_reply_over_sessions.py

Set SERVICEBUS_CONNECTION_STRING to use a broker on another machine.
"""

import os
import uuid

from azure.servicebus import ServiceBusClient, ServiceBusMessage

CONNECTION_STRING = os.environ.get(
    "SERVICEBUS_CONNECTION_STRING",
    "Endpoint=sb://localhost;SharedAccessKeyName=RootManageSharedAccessKey;"
    "SharedAccessKey=SAS_KEY_VALUE;UseDevelopmentEmulator=true;",
)


def ask(client: ServiceBusClient, question: str) -> str:
    """Send a question and return the answer. A session can be accepted before it has messages."""
    session = str(uuid.uuid4())
    request = ServiceBusMessage(question, reply_to="replies", reply_to_session_id=session)
    with client.get_queue_receiver("replies", session_id=session) as replies:
        with client.get_queue_sender("requests") as requests:
            requests.send_messages(request)
        serve_one(client)
        for reply in replies.receive_messages(max_wait_time=10):
            replies.complete_message(reply)
            return str(reply)
    raise TimeoutError("no reply within 10 seconds")


def serve_one(client: ServiceBusClient) -> None:
    """Answer one question. In a real application this runs in another process."""
    with client.get_queue_receiver("requests") as requests:
        for request in requests.receive_messages(max_wait_time=10):
            answer = ServiceBusMessage(str(request).upper(), session_id=request.reply_to_session_id)
            with client.get_queue_sender(request.reply_to) as replies:
                replies.send_messages(answer)
            requests.complete_message(request)


if __name__ == "__main__":
    with ServiceBusClient.from_connection_string(CONNECTION_STRING) as servicebus:
        print(ask(servicebus, "is anybody there?"))
