"""Tests of dead_letters."""
