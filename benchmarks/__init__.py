"""Benchmarks: what the product can do on this machine, next to hand-written SQL in the same run.

Run `python -m benchmarks [name ...]`; docs/benchmarks.md says what each one measures.
"""
