"""Who may see the pages: sessions, and the ways to open one."""
