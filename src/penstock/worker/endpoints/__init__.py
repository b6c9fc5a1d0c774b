"""HTTP processors: runs sent to endpoints as signed requests, and the handling of responses."""
