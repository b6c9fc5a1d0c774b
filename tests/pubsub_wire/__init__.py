"""Tests of the Pub/Sub front end with Google's own client library."""
