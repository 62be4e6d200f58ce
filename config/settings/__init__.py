"""Settings of the process, from flags, environment variables and a config file."""
