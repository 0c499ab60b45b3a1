"""What `forked.py` has in memory before it forks: the catalogue, which a command reads once and never writes."""

from harness.deviations.catalogue import catalogue

catalogue()
