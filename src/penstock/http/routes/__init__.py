"""Routes by subject. Each is thin: read the request, call one use case, shape the answer."""
