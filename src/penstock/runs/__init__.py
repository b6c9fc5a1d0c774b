"""The run queue: submission, admission, claims, results, external workers and the sweeper."""
