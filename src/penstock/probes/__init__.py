"""Probing the data that gates depend on: one adapter per warehouse behind `probes.protocol`.

Gates call `probes.runner.ProbeRunner`; everything here only reads.
"""
