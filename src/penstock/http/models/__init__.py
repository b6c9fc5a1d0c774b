"""The API's shapes: what requests may say and what answers say, each field described.

Requests are checked by these models; answers are built by `client.shapes` and only described here
(tests compare the two).
"""
