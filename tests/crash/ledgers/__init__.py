"""What clients were told, one ledger for each kind of promise. No ledger talks to the broker."""
