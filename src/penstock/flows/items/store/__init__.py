"""Store functions of expansions and items."""
