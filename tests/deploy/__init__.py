"""Files that deploy Penstock."""
