"""The API over real servers and stores."""
