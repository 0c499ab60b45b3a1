"""Judges many subjects side by side: queues, worker threads, the thread that judges, and the head start of a run."""
