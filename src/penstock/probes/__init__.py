"""Probing the data that gates depend on: one adapter per warehouse behind `probes.api`.

Gates call `Probes` in `probes.looking`; everything here only reads.
"""
