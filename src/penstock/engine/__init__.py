"""Services: each does one bounded step per `run_once` and is looped by the supervisor."""
