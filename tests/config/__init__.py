"""Settings and config files, and the messages about mistakes in them."""
