"""Dead letters: one inbox of runs and deliveries, with replay."""
