"""Use cases of usage: budgets, anomalies, pools."""
