"""What a release must pass: `make release-check`, and its parts."""
