"""One suite by topic, run on every engine: what a store promises."""
