"""The promise behind each kind of contradiction, for the report.

A ledger has short names for its kinds; the report has sentences.
"""

from __future__ import annotations

PROMISES = {
    # Messages of one place.
    "lost": "what was accepted is there until it is completed",
    "back": "what was confirmed to be completed or deleted never comes again",
    "stored twice": "a message that was sent is stored once",
    "sequence number reused": "a sequence number belongs to one message for ever",
    "out of order": "messages come in the order in which they were sent",
    "stored out of order": "messages are numbered in the order in which they were sent",
    "unknown": "what is delivered was sent",
    "refused yet delivered": "a send that was refused stores nothing",
    "dead-lettered": "no message becomes a dead letter that nobody dead-lettered",
    "left over": "a place that everything was completed in is empty",
    "left behind": "a place that everything was completed in is empty",
    # Several messages as one.
    "partial": "what is sent or committed as one takes effect as a whole or not at all",
    "confirmed yet missing": "a transaction whose commit was confirmed took effect as a whole",
    "rolled back yet present": "what a transaction did not commit never shows",
    "misrouted": "a message comes only to subscriptions whose rules choose it",
    "action lost": "the action of the rule that chose a message is applied to its copy",
    "in two places": "a message that is moved is in one place at a time",
    "lost on the way": "a message whose move had no answer is in one of its two places",
    # Deferred and scheduled messages.
    "deferred yet delivered": "a deferred message is given only to whoever asks by its number",
    "deferred yet missing": "a deferred message is there for whoever asks by its number",
    "number changed": "a deferred message keeps its sequence number",
    "early": "a scheduled message does not come before its time",
    "cancelled yet present": "a scheduled message whose cancellation was confirmed never comes",
    "gone before its time": "a scheduled message can be cancelled until its time",
    # Locks and sessions.
    "locked twice": "a message is locked by one receiver at a time",
    "delivery count": "the delivery count grows by failed deliveries and ends at its maximum",
    "held twice": "a session is held by one receiver at a time",
    "never free": "a session can be accepted again once its holder is gone",
    "in another session": "a message comes only to the holder of its own session",
    "state lost": "the state of a session is what was confirmed to be set last",
    "session forgotten": "the sessions without messages that are listed are those with a state",
    # Entities and rules.
    "gone": "an entity that was confirmed to be created is there until it is deleted",
    "half": "a change of an entity takes effect as a whole or not at all",
    "change refused": "a change that the entity allows is made",
    "not as it was made": "entities and rules are as their last confirmed change left them",
    "administration refused": "a change that the entity allows is made",
    "message of an earlier run": "a new entity is empty, whatever its name held before",
    "message lost": "what was accepted is there until it is received",
    "message back": "what was received for good never comes again",
    # Clients.
    "unanswered": "every request of a client is answered, or its connection ends",
    "closed with an error": "the broker finds no mistake in what a correct client sends",
    "link refused": "an attach to an entity that exists is answered with a link",
    # A disk after a power cut.
    "unreadable": "a store can be opened after a power cut at any moment",
    "not sent yet": "a store holds nothing that was sent after the power cut",
    "stored in part": "what is sent as one is stored as a whole or not at all",
    "moved in part": "a message that is moved is in one place at a time",
    "value lost": "a value is what was confirmed to be set last",
}
