"""Tests of breakers as people see them."""
