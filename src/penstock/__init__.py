"""Penstock: a durable run queue, scheduler and pipelines on SQLite or PostgreSQL.

This module is the public surface. Every name a user may rely on is listed in `__all__`; anything
else may change without notice. It must stay cheap to import: no driver and no service is loaded.
"""

from importlib.metadata import version

__all__ = ["__version__"]

__version__: str = version("penstock")
