"""Declaring a pipeline: the classes and options that user code calls."""
