"""Readers of other projects' datasets. A line that breaks a rule raises DatasetError with its location."""
