"""Shared by tests of several areas: the broker as a process and in memory, clients, clocks,
stores."""
