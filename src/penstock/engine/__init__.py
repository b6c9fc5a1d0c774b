"""Services: each performs one bounded step per `run_once`; the supervisor calls it in a loop."""
