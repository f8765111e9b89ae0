"""Asks a question about a folder, and shows each citation as a page would: its claim, its words and their place.

Example: python examples/show_citations.py demo/corpus "How long may a dive last in cold water?"
"""

import sys

from rag_core import open_knowledge_base


def main(folder: str, question: str) -> None:
    with open_knowledge_base() as knowledge:
        knowledge.ingest(folder)
        answer = knowledge.ask(question).answer
    print(answer.text)
    for citation in answer.citations:
        start, end = citation.claim
        print(f"\n[{citation.n}] {citation.title}, {citation.section}")
        print(f"    claim: {answer.text[start:end]}")
        print(f"    words: {citation.quote}")
        print(f"    place: characters {citation.start} to {citation.end} of {citation.uri}")


if __name__ == "__main__":
    main(*sys.argv[1:3])
