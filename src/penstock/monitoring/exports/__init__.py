"""Exports of history: ended runs, flows, journal and executions, page by page."""
