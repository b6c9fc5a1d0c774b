"""Routes by subject. Each reads the request, calls one use case and builds the response."""
