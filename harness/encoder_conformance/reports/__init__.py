"""What is left of runs: the folder, the terminal, the site, the formats of CI, comparison, merging, scripts."""
