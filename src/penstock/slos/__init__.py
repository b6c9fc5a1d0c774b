"""Service levels: targets, results, error budgets, breaches."""
