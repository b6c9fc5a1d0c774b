"""Analytics: counters folded from the logs, and the statistics that pages and reports derive from
them.
"""
