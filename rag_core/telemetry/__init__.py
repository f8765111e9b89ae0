"""Log lines, metrics and traces of the work in progress. Nothing is recorded until a server turns them on."""
