"""What the operator writes, and what is said when it is wrong."""
