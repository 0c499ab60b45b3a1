"""Worker processes: each implementation's adapter in a process of its own, asked over the wire."""
