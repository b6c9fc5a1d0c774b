"""Rules that pipelines declare in Python, and the service that evaluates them."""
