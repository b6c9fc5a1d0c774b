"""Forecasts: when a live flow will probably end, from how long its phases took before."""
