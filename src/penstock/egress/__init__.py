"""How the house asks foreign HTTP servers, and how it proves and checks who speaks.

Adapters over the core's rules: one pinned request (`pinned`), signed tokens (`tokens`), and the
cached keys of others (`keyset`). Nothing here knows the store.
"""
