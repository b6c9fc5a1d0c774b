"""The commands `status`, `alerts` and `doctor`."""
