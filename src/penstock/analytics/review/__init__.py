"""Reviews of an installation: the daily checks and the weekly report."""
