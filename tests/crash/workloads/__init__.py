"""What clients do while the broker is killed: one module for each kind of promise."""
