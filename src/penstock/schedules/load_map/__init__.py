"""The load map: scheduled starts of the coming hours, and jitter that spreads them."""
