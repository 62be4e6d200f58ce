"""The broker's machine beside a naive model of Service Bus, driven by random commands."""
