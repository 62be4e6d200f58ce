"""Request and reply: the requester waits for its own answer in a session of its own.

    make run ARGS="--config examples/entities.yaml"     # has the queues `requests` and `replies`
    python examples/request_reply_over_sessions.py

Set SERVICEBUS_CONNECTION_STRING to use another broker than the one on this machine.
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
    """Send a question and wait for its answer. The session may be accepted before it arrives."""
    session = str(uuid.uuid4())
    request = ServiceBusMessage(question, reply_to="replies", reply_to_session_id=session)
    with client.get_queue_receiver("replies", session_id=session) as replies:
        with client.get_queue_sender("requests") as requests:
            requests.send_messages(request)
        serve_one(client)
        for reply in replies.receive_messages(max_wait_time=10):
            replies.complete_message(reply)
            return str(reply)
    raise TimeoutError("nobody answered")


def serve_one(client: ServiceBusClient) -> None:
    """Answer one question; in real life this runs in another process."""
    with client.get_queue_receiver("requests") as requests:
        for request in requests.receive_messages(max_wait_time=10):
            answer = ServiceBusMessage(str(request).upper(), session_id=request.reply_to_session_id)
            with client.get_queue_sender(request.reply_to) as replies:
                replies.send_messages(answer)
            requests.complete_message(request)


if __name__ == "__main__":
    with ServiceBusClient.from_connection_string(CONNECTION_STRING) as servicebus:
        print(ask(servicebus, "is anybody there?"))
