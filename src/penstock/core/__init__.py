"""The rules of Penstock as pure functions over plain data.

Nothing here performs I/O, holds a connection or reads a clock (except ``core.clock``); functions
take ``now``. Every other package may import this one; it imports none of them.
"""
