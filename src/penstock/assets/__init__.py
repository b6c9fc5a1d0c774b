"""Files for monitoring systems, generated from the declared metrics and alert rules."""
