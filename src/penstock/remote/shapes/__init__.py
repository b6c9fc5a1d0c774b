"""The API's shapes, by subject.

Written by `python -m penstock.remote.generate docs/reference/openapi.json`; do not edit.
"""
