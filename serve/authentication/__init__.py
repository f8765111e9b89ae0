"""Who is calling: the caller of a request, and what finds it from the request's credentials."""
