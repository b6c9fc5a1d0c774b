"""The transport protocol and the embedded bus behind it."""
