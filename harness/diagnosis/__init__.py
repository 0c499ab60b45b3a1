"""Why an implementation fails: causes that are seen, and deviations of the catalogue that explain what is wrong."""
