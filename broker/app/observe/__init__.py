"""Logs, metrics, traces and reports."""
