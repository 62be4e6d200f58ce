"""What a power cut leaves: writes and syncs recorded, torn images rebuilt, held against the ledger."""
