"""The built-in worker: claims runs, executes processors, finishes runs."""
