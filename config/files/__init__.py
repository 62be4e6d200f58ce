"""Config files: reading and writing the YAML form and the official emulator's JSON form.

Each mistake in a file is reported with its line.
"""
