"""What people can do from the pages: each action is previewed, confirmed and reported."""
