"""What becomes of a question before anything is searched for it."""
