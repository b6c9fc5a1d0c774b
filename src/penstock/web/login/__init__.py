"""Access to the pages: sessions, and the ways to open one."""
