"""What tests of several areas share: the broker as a process, clients, clocks."""
