"""The pages: each a function from a visit to the parts of a page."""
