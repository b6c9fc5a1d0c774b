"""Messages that other systems push to Penstock."""
