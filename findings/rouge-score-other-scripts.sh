#!/usr/bin/env bash
# rouge-score: a text in Greek, Cyrillic or Chinese has a ROUGE of 0 with itself, and "C++" one of 1 with "C".
#
# Guess, written down first: ROUGE is the share of words that two texts have in common, so that a text has 1 with
# itself in any language, and texts of other words have less.
#
# Seen on 2026-11-30 with rouge-score 0.1.2 (Python 3.11): before it counts words, the default tokenizer makes spaces of
# all characters but a to z and 0 to 9. Of a text in another script nothing is left, and the score is 0 without a
# warning; a summary in Russian that keeps only the names in Latin letters has the score of these names alone. Letters
# with accents end words: "naïve" equals "na ve", so one word counts as two. Signs are lost: "C++", "C#" and "C" are
# equal. A tokenizer of one's own mends it. Hugging Face's `evaluate` takes this package for "rouge".
#
# Source: https://pypi.org/project/rouge-score ("Text normalization … removes non-alphanumeric characters");
# tokenize in rouge_score/tokenize.py.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" -q install rouge-score==0.1.2
"$folder/venv/bin/python" - <<'PY'
from rouge_score import rouge_scorer


class Words:
    def tokenize(self, text):
        return text.split()


def score(reference, text, **options):
    found = rouge_scorer.RougeScorer(["rouge1"], **options).score(reference, text)["rouge1"]
    print(f"{reference!r}, {text!r}: {found.fmeasure:.3f}")
    return round(found.fmeasure, 3)


assert score("the cat sat", "the cat sat") == 1
for text in ["η γάτα κάθισε", "кошка сидит", "猫坐着"]:
    assert score(text, text) == 0
    assert score(text, text, tokenizer=Words()) == 1
assert score("кошка Anna сидит", "собака Anna бежит") == 1
assert score("naïve", "na ve") == 1
assert score("C++", "C#") == 1
assert score("C++", "C#", tokenizer=Words()) == 0
PY
