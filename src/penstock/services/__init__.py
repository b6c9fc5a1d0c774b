"""Services over several subjects, and the supervisor that runs them in loops."""
