"""Clients that say what happened to everything they asked for; what it means is the ledgers'."""
