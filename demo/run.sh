#!/usr/bin/env bash
# A sample corpus (the handbook of an invented tidal power station): sync it on Ray, ask it, change it, sync, ask again.
set -euo pipefail
cd "$(dirname "$0")"

folder=../build/demo
question="How often do we have to replace the signing keys of the control system?"

say() { printf '\n\033[1m# %s\033[0m\n' "$*"; }
run() { printf '\033[2m$ %s\033[0m\n' "$*"; "$@"; }

rag collections drop demo --yes --quiet 2>/dev/null || true
rm -rf "$folder"
mkdir -p "$folder"
cp -r corpus/. "$folder/"

say "First sync, on Ray: everything is new. A picture and an empty file have no text; they are named, not lost."
run rag ingest "$folder" --collection demo --runner ray
run rag documents list --collection demo --status skipped

say "A question, in words that the handbook does not use."
run rag search "$question" --collection demo -k 2

say "Answers: the sentences that say it, verbatim, each with its source. What the handbook does not say is not made up."
run rag ask "$question" --collection demo
run rag ask "What is the minimum head needed before a turbine can be started?" --collection demo
run rag ask "How many eels swam through the fish ladder in 2022?" --collection demo
run rag ask "Which enzyme does ribavirin inhibit?" --collection demo

say "The handbook's second version: new, changed and deleted files."
cp -r update/. "$folder/"
rm "$folder/DELETED"
while read -r path; do rm "$folder/$path"; done < update/DELETED
run rag ingest "$folder" --collection demo --dry-run
run rag ingest "$folder" --collection demo

say "The same question again: the answer has changed with the handbook."
run rag search "$question" --collection demo -k 2
run rag ask "$question" --collection demo -v

say "A third sync finds nothing to do, and the store is sound."
run rag ingest "$folder" --collection demo
run rag fsck

say "All of it stays: try rag ask 'Who is the harbour master?' --collection demo, and rag store stop when done."
