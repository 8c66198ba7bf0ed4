#!/usr/bin/env bash
# sacreBLEU: references in a list for each sentence, as NLTK takes them, leave all sentences but the first unscored.
#
# Guess, written down first: corpus_bleu takes as many references as there are sentences, in whichever order of the two
# axes; if these are mixed up, the lengths do not fit, and that is an error.
#
# Seen on 2026-11-30 with sacrebleu 2.6.0 (Python 3.11): the outer list is over sets of references and the inner one
# over sentences. With [[reference of 1], [reference of 2]] for two sentences, each set has one reference; sentences are
# paired with them by zip, which ends at the shortest. So only the first sentence is scored, with the references of all
# others as its own: BLEU, chrF and TER are perfect if it is, though the second is rubbish. No error and no warning.
#
# Source: https://github.com/mjpost/sacrebleu#using-sacrebleu-from-python ("references are a list of lists");
# Metric._extract_corpus_statistics in sacrebleu/metrics/base.py.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" -q install sacrebleu==2.6.0
"$folder/venv/bin/python" - <<'PY'
import sacrebleu

texts = ["the cat sat on the mat", "rubbish"]
references = ["the cat sat on the mat", "a dog ran in the park"]
by_set, by_sentence = [references], [[reference] for reference in references]
for name, best in [("corpus_bleu", 100), ("corpus_chrf", 100), ("corpus_ter", 0)]:
    measure = getattr(sacrebleu, name)
    right, mixed = measure(texts, by_set).score, measure(texts, by_sentence).score
    print(f"{name}: {right:.1f} by sets, {mixed:.1f} by sentences")
    assert abs(mixed - best) < 1e-6 and abs(right - best) > 20
# The other sentences are not looked at.
assert sacrebleu.corpus_bleu(texts[:1] + ["", "more", "of it"], by_sentence + by_sentence).score > 99.9
PY
