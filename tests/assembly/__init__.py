"""Tests of assembly."""
