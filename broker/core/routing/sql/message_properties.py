"""The properties of a message that filters and actions use, by lower-case name.

A view decodes the application properties and each system property once, for all rules.
`EditableProperties` is a copy for one action, and knows what the action has changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from broker.core.routing.sql.sql_errors import FilterError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from uuid import UUID

    from broker.core.contract.message import Message, MessageReader, PropertyValue

SET_TEXT_MAX_CHARACTERS = 1024 * 1024
"""How much text one action may make, so that it ends soon. What remains of it in the copy has a smaller limit."""


class PropertySource(Protocol):
    """The properties for the evaluation of an expression. Names are lower-case."""

    @property
    def user(self) -> Mapping[str, PropertyValue]:
        """Application properties."""

    @property
    def system(self) -> Mapping[str, PropertyValue]:
        """The `sys.*` properties. Indexing with an existing name never fails, also if it is not
        set."""

    @property
    def new_id(self) -> Callable[[], UUID]:
        """Creates the values of `newid()`."""


class _ReadOnDemand(dict[str, "PropertyValue"]):
    """A dict that reads missing values on demand."""

    __slots__ = ("read",)

    read: Callable[[str], PropertyValue]

    def __missing__(self, name: str) -> PropertyValue:
        value = self[name] = self.read(name)
        return value


class MessageProperties:
    """The properties of one message."""

    __slots__ = ("_message", "_reader", "application", "new_id", "system", "user")

    application: Mapping[str, PropertyValue]
    """The application properties with the names as sent."""
    user: Mapping[str, PropertyValue]
    system: Mapping[str, PropertyValue]

    def __init__(self, message: Message, reader: MessageReader, new_id: Callable[[], UUID]) -> None:
        self._message = message
        self._reader = reader
        self.new_id = new_id

    def __getattr__(self, name: str) -> Mapping[str, PropertyValue]:
        # Python calls this only while the slot is empty, so each kind is read once.
        if name == "user":
            self.application = self._reader.application_properties(self._message)
            self.user = {key.lower(): value for key, value in self.application.items()}
            return self.user
        if name == "system":
            self.system = system = _ReadOnDemand()
            system.read = self._reader.system_properties(self._message).get
            return system
        raise AttributeError(name)


class EditableProperties:
    """The properties of a message while an action changes them."""

    __slots__ = (
        "_names",
        "_set_characters",
        "_set_system",
        "_set_user",
        "new_id",
        "system",
        "user",
    )

    def __init__(self, source: MessageProperties) -> None:
        self.user = dict(source.user)
        self.system = _ReadOnDemand()
        self.system.read = source.system.__getitem__
        self.new_id = source.new_id
        self._names = {name.lower(): name for name in source.application}
        # Dicts keep the order, so that the same action always makes the same changes.
        self._set_user: dict[str, None] = {}
        self._set_system: dict[str, None] = {}
        self._set_characters = 0
        """The length of all texts that were set, including those that were replaced."""

    def set_user(self, name: str, value: PropertyValue) -> None:
        """Create or replace an application property. An existing name keeps its case."""
        key = name.lower()
        if isinstance(value, str):
            self._set_characters += len(value)
            if self._set_characters > SET_TEXT_MAX_CHARACTERS:
                raise FilterError(
                    f"The action sets more than {SET_TEXT_MAX_CHARACTERS} characters."
                )
        self.user[key] = value
        self._names.setdefault(key, name)
        self._set_user[key] = None

    def remove_user(self, name: str) -> None:
        """Remove an application property, if it is there."""
        key = name.lower()
        if key in self.user:
            del self.user[key]
            self._set_user[key] = None

    def set_system(self, name: str, value: PropertyValue) -> None:
        """Set a system property by its canonical name. None removes it."""
        self.system[name] = value
        self._set_system[name] = None

    def changed_user(
        self, encode_property: Callable[[PropertyValue], bytes]
    ) -> dict[str, bytes | None]:
        """Returns the changed application properties, encoded. None for removed ones."""
        return {
            self._names[key]: encode_property(self.user[key]) if key in self.user else None
            for key in self._set_user
        }

    def changed_system(
        self, encode_property: Callable[[PropertyValue], bytes]
    ) -> dict[str, bytes | None]:
        """Returns the changed system properties, encoded. None for removed ones."""
        return {
            name: None if self.system[name] is None else encode_property(self.system[name])
            for name in self._set_system
        }
