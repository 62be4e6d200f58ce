"""Crash tests: workloads run while the broker is killed, and ledgers compare its state with the
answers that clients got."""
