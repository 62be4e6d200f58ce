"""Messages between the wire and the core, section by section; the body stays bytes.

The one door to `section_reader` and `section_writer`.
What `read_message` took, `encode_delivery` gives back with the broker's own sections in front.
"""

from protocol.codec.section_reader import pack_header, read_batch, read_message
from protocol.codec.section_writer import delivery_tag, encode_delivery, encode_message, lock_token

__all__ = [
    "delivery_tag",
    "encode_delivery",
    "encode_message",
    "lock_token",
    "pack_header",
    "read_batch",
    "read_message",
]
