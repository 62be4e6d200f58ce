"""The brokers of the SDK tests serve generic clients as well."""

from tests.sdk.conftest import live

__all__ = ["live"]
