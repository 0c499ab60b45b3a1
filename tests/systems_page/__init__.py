"""docs/systems.md: what docs/systems.yaml says, what its commands answer, and the page that is made of both."""
