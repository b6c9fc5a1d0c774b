"""How gates look at data: one adapter per warehouse behind the protocol of `probes.api`.

`Probes` in `probes.looking` is what gates call; everything here only reads.
"""
