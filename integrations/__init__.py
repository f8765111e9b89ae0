"""Adapters for other libraries: retrievers of LangChain and LlamaIndex, and a component of Haystack."""
