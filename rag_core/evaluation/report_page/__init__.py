"""The report of a run for people: one HTML file without network access, and the same as Markdown."""
