"""Pages of flows: the list, one flow, the grid."""
