"""Power cuts: records writes and syncs, builds torn images of the disk, and compares each with the
ledger."""
