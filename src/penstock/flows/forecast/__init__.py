"""Forecasts: the probable end of a live flow, from earlier durations of its phases."""
