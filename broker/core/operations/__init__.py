"""What each command does, one module for each operation or family of operations.

`Namespace.apply` calls these modules. They use entities and queues; entities and queues do not know them.
"""
