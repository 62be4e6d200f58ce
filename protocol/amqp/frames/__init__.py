"""A connection's frames, read and changed beside Proton.

Incoming frames are inspected before Proton gets them, where Proton hides something or is stricter than Service Bus.
Outgoing frames are changed where Proton does not write what is needed. Nothing here calls Proton.
"""
