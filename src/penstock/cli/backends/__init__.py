"""What commands call: the use cases on a database or through the API."""
