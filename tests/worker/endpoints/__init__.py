"""Tests of HTTP processors."""
