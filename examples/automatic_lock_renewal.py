"""Work that takes longer than the lock duration. The SDK renews the lock until the work is done.

    make run ARGS="--config examples/entities.yaml"     # declares the queue `slow-work`
    python examples/automatic_lock_renewal.py

Set SERVICEBUS_CONNECTION_STRING to use a broker on another machine.
"""

import os
import time

from azure.servicebus import AutoLockRenewer, ServiceBusClient, ServiceBusMessage

CONNECTION_STRING = os.environ.get(
    "SERVICEBUS_CONNECTION_STRING",
    "Endpoint=sb://localhost;SharedAccessKeyName=RootManageSharedAccessKey;"
    "SharedAccessKey=SAS_KEY_VALUE;UseDevelopmentEmulator=true;",
)
WORK_SECONDS = float(os.environ.get("WORK_SECONDS", "7"))

with (
    ServiceBusClient.from_connection_string(CONNECTION_STRING) as client,
    AutoLockRenewer(max_lock_renewal_duration=300) as renewer,
):
    with client.get_queue_sender("slow-work") as sender:
        sender.send_messages(ServiceBusMessage("take your time"))
    with client.get_queue_receiver("slow-work", auto_lock_renewer=renewer) as receiver:
        for message in receiver.receive_messages(max_wait_time=10):
            time.sleep(WORK_SECONDS)
            receiver.complete_message(message)
            print(f"done: {message}, delivered {message.delivery_count + 1} time(s)")
