"""The protocols: translate the bytes of clients into commands for the core, and effects of the core into bytes.

`amqp` and `http` encode and decode; the core decides what a request does. `codec` has the AMQP encoding that both use,
`identity` verifies tokens, and `faults` decides which operations fail on purpose. This package does not import
`storage`, and the core does not import this package.
"""
