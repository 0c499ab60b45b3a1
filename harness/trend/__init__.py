"""What became of an implementation over several runs: since which version what is so."""
