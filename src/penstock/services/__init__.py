"""Services over several subjects, and the supervisor that loops them."""
