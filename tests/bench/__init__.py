"""How fast the broker is: a load generator that checks what it measures, and the cases it runs."""
