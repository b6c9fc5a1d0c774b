"""Tests of changed entities and incremental processors."""
