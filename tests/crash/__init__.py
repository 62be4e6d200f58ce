"""What survives when the broker is killed: workloads, a ledger of what clients were told, an audit."""
