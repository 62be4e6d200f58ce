"""Ledgers of the answers that clients got, one for each kind of promise. No ledger connects to the
broker."""
