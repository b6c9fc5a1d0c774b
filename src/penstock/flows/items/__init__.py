"""Fan-out: one run per item of a processor, and the fan-in that counts them."""
