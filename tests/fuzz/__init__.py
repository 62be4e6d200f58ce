"""Hostile bytes at a running broker: recordings of stock clients mutated, frames, HTTP, tokens."""
