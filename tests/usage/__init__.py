"""Tests of usage."""
