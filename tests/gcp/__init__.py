"""Tests with Google's client libraries: BigQuery against an emulator, see `make test-gcp`."""
