"""Jobs on Ray Data: thin adapters around `rag_core`."""
