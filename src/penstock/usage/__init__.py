"""Recorded usage: cost and budgets, load of pools, profiles of processors and anomalies."""
