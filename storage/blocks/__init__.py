"""Blocks: how stores keep messages and their bodies. Pure; each store reads and writes the blocks in its own way.

A commit writes its new rows and bodies as one block, and a block is never changed. Which of its rows and bodies are dead
(deleted, or written again to a later block) is kept beside it, and is deleted together with it, when nothing in it is
alive. `block_format.py` defines the bytes, `block_index.py` says where each message is, `block_batch.py` turns the
records of a commit into changes of blocks, and `compaction.py` says which blocks to write again.
"""
