"""What a store promises, kept by each of them; and what can happen to a file."""
