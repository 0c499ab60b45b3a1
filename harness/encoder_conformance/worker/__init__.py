"""Worker processes: each implementation's adapter runs in its own process and answers requests over the wire."""
