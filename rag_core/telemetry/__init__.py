"""What is told of work under way and done, in log lines, metrics and traces: nothing until a server asks for it."""
