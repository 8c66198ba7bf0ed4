#!/usr/bin/env bash
# tokenizers: BPE without an unknown token drops a character that it does not know, and then merges its neighbors.
#
# Guess, written down first: a character that is not in the vocabulary is an error, or it is left out and separates what
# stands around it: "axb" becomes a, b.
#
# Seen on 2026-11-30 with tokenizers 0.23.3 (Python 3.11): with the merge (a, b) and no x in the vocabulary, "axb" is
# the one token "ab", as if it were the text "ab"; its offsets, (0, 2), are those of "ax". No error and no warning.
# Three unknown characters between are no hindrance. Offsets of later tokens of the same word are too small, too: what
# marks entities by them marks others. With an unknown token, "axb" is a, unknown, b, with right offsets. Vocabularies
# of protein letters, musical notes or moves are often written without an unknown token.
#
# Source: https://huggingface.co/docs/tokenizers/api/models#tokenizers.models.BPE (unk_token, "The unknown token to be
# used by the model", is optional); merge_word in tokenizers/src/models/bpe/model.rs.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" -q install --no-deps tokenizers==0.23.3
"$folder/venv/bin/python" - <<'PY'
from tokenizers import Tokenizer, models

vocabulary, merges = {"a": 0, "b": 1, "ab": 2, "c": 3, "?": 4}, [("a", "b")]


def encoded(text, **options):
    found = Tokenizer(models.BPE(vocabulary, merges, **options)).encode(text)
    print(text, options, "->", found.tokens, found.offsets)
    return found.tokens, found.offsets


assert encoded("ab") == (["ab"], [(0, 2)])
assert encoded("axb") == (["ab"], [(0, 2)])
assert encoded("axxxbc") == (["ab", "c"], [(0, 2), (2, 3)])
assert encoded("axb", unk_token="?") == (["a", "?", "b"], [(0, 1), (1, 2), (2, 3)])
PY
