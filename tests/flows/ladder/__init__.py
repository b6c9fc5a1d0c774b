"""Tests of the rungs below the cascade."""
