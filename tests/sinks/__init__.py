"""Tests of sinks."""
