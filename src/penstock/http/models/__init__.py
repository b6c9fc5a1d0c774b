"""Models of request and response bodies; every field has a description.

Requests are validated by these models. Responses are built by `client.shapes` and only documented
here; tests compare the two.
"""
