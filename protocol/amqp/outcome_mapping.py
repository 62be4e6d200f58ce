"""The mapping between AMQP and Service Bus: outcomes and settlements, errors and conditions.

A client sends an outcome to ask for a settlement, and gets an outcome of the same type as the answer, for which every
SDK waits. All SDKs understand `rejected` with an error as a failure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.core.contract.settlement_values import (
    ABANDON,
    COMPLETE,
    DEAD_LETTER,
    DEFER,
    RELEASE,
    Settlement,
    SettlementKind,
)
from protocol.amqp.engine.outcomes import (
    ACCEPTED,
    RELEASED,
    Accepted,
    Modified,
    Outcome,
    Rejected,
    Released,
    WireError,
)
from protocol.codec import decode

if TYPE_CHECKING:
    from protocol.refusals import Refusal

DEAD_LETTER_REASON = "DeadLetterReason"
DEAD_LETTER_DESCRIPTION = "DeadLetterErrorDescription"


def settlement_of(outcome: Outcome | None) -> Settlement:
    """Returns the settlement that an outcome asks for. Settling without an outcome releases the message."""
    if isinstance(outcome, Accepted):
        return COMPLETE
    if isinstance(outcome, Modified):
        plain = DEFER if outcome.undeliverable_here else ABANDON
        return Settlement(plain.kind, outcome.annotations) if outcome.annotations else plain
    if isinstance(outcome, Rejected):
        return _dead_letter(outcome)
    return RELEASE


ANSWERS: dict[SettlementKind, Outcome] = {
    SettlementKind.COMPLETE: ACCEPTED,
    SettlementKind.ABANDON: Modified(delivery_failed=True, undeliverable_here=False),
    SettlementKind.DEFER: Modified(delivery_failed=True, undeliverable_here=True),
    SettlementKind.DEAD_LETTER: Rejected(),
    SettlementKind.RELEASE: RELEASED,
}
"""The answer to a settlement that took effect: the same outcome type, and no error."""


def wire_error(refusal: Refusal) -> WireError:
    """Returns a refusal as an AMQP error. The info map is never empty: one SDK hangs otherwise."""
    return WireError(
        refusal.condition, refusal.text, {"com.microsoft:tracking-id": refusal.tracking_id}
    )


def _dead_letter(outcome: Rejected) -> Settlement:
    """Returns a dead-lettering with the reason and description of the info map, or else of the error, which generic
    clients send."""
    info = dict(outcome.info or {})
    reason = _take_text(info, DEAD_LETTER_REASON)
    description = _take_text(info, DEAD_LETTER_DESCRIPTION)
    if outcome.condition not in (None, "com.microsoft:dead-letter"):
        reason = reason or outcome.condition
    description = description or outcome.description
    if not (info or reason or description):
        return DEAD_LETTER
    return Settlement(SettlementKind.DEAD_LETTER, info or None, reason, description)


def _take_text(info: dict[str, bytes], name: str) -> str | None:
    """Removes a string from the map and returns it. A value of another type is a property, and stays."""
    if name not in info:
        return None
    value = decode(info[name])[0]
    if value is None or isinstance(value, str):
        del info[name]
        return None if value is None else str(value)
    return None


__all__ = ["ANSWERS", "Released", "settlement_of", "wire_error"]
