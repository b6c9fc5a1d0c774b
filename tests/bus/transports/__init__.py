"""Tests of bus/transports."""
