"""What we claim about speed, as commands that print ratios within one run."""
