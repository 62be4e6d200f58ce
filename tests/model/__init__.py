"""The core compared with a naive model of Service Bus, driven by random commands."""
