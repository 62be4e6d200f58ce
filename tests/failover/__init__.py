"""Several broker processes on one PostgreSQL server: standby, take-over, and troubles of the database."""
