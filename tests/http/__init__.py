"""The HTTP side, driven by stock clients and by raw requests."""
