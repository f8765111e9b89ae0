"""The experiments of Hyper-KB: what was measured with which retriever, and how the results compare."""
