"""The rules of Penstock as pure functions over plain data.

Nothing here performs I/O, holds a connection or reads a clock (``core.clock`` excepted); functions
take ``now``. Every other room may import this one, and it imports none of them.
"""
