"""Tests of shipping to audit sinks."""
