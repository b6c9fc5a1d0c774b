"""The rules over measurements that Penstock comes with."""
