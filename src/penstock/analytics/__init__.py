"""Analytics: counters folded from the logs, and the figures that pages and reports show of them."""
