"""`make prove`: every proof of the reliability of Penstock in one run, with a report."""
