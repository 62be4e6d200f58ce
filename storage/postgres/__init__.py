"""A store in a schema of a PostgreSQL database, which one broker at a time owns."""
