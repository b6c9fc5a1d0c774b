"""One suite per subject, run on every engine: what a store guarantees."""
