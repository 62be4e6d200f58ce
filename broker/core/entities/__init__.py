"""Queues, topics and subscriptions as entities: definitions, names, quotas, authorization rules.

Not here: what clients ask of an entity (`operations`), and how it keeps its messages (`queues`).
"""
