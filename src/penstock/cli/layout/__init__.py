"""Layout of the command line on a terminal: tables that fit, help that wraps well."""
