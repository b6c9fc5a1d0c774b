"""HTTP processors: runs sent to endpoints as signed requests, and what their replies mean."""
