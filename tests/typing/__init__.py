"""Tests of the types that programs see."""
