"""Whether an answer is held by its passages, and what is done with one that is not."""
