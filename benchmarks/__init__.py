"""Benchmarks of Penstock on this machine, next to hand-written SQL in the same run.

Run `python -m benchmarks [name ...]`; docs/benchmarks.md describes what each one measures.
"""
