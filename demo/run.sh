#!/usr/bin/env bash
# Syncs a sample corpus on Ray (the handbook of an invented tidal power station), asks questions, changes the corpus,
# syncs it and asks again.
set -euo pipefail
cd "$(dirname "$0")"

folder=../build/demo
question="How often do we have to replace the signing keys of the control system?"

print_step() { printf '\n\033[1m# %s\033[0m\n' "$*"; }
run() { printf '\033[2m$ %s\033[0m\n' "$*"; "$@"; }

rag collections drop demo --yes --quiet 2>/dev/null || true
rm -rf "$folder"
mkdir -p "$folder"
cp -r corpus/. "$folder/"

print_step "First sync, on Ray: all files are new. A picture and an empty file have no text, so they are listed as skipped."
run rag ingest "$folder" --collection demo --runner ray
run rag documents list --collection demo --status skipped

print_step "A search, in words that the handbook does not use."
run rag search "$question" --collection demo -k 2

print_step "Answers: sentences quoted from the handbook, each with its source. If no sentence answers, nothing is made up."
run rag ask "$question" --collection demo
run rag ask "What is the minimum head needed before a turbine can be started?" --collection demo
run rag ask "How many eels swam through the fish ladder in 2022?" --collection demo
run rag ask "Which enzyme does ribavirin inhibit?" --collection demo

print_step "The second version of the handbook: new, changed and deleted files."
cp -r update/. "$folder/"
rm "$folder/DELETED"
while read -r path; do rm "$folder/$path"; done < update/DELETED
run rag ingest "$folder" --collection demo --dry-run
run rag ingest "$folder" --collection demo

print_step "The same question again: the answer has changed with the handbook."
run rag search "$question" --collection demo -k 2
run rag ask "$question" --collection demo -v

print_step "A third sync has nothing to do, and the check of the store finds no errors."
run rag ingest "$folder" --collection demo
run rag fsck

print_step "The collection is kept. Try: rag ask 'Who is the harbour master?' --collection demo. To stop the store: rag store stop"
