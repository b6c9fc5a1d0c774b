"""`penstock init`: new projects from templates."""
