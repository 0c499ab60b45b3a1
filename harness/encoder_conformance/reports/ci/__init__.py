"""A run in the formats that CI systems read: JUnit XML, Markdown, annotations, a badge."""
