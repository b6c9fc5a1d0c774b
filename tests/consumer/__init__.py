"""Tests of the consumer kit and its sinks."""
