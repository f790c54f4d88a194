"""A KV-cache memory manager you can read: block pool, block tables, copy-on-write, and what serving does to them.

Start with `pagedkv.blocks` and `pagedkv.tables`; together they are PagedAttention's memory manager.
"""

__version__ = "0.1.0"
