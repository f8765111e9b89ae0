"""Writes the reference of the documentation from the code: the settings, the commands and the HTTP API."""
