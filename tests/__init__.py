"""The tests of Penstock; a package, so that shared rules and factories can be imported by name."""
