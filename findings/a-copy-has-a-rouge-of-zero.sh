#!/usr/bin/env bash
# A summary that equals its reference has a ROUGE of 0, and one about something else a ROUGE of 1. rouge-score 0.1.2.
# Guess: two equal texts have a ROUGE of 1 in any language; the score goes by their words.
# Seen: all that is not a to z or a digit is taken for a space first. A text in Cyrillic, Greek or Chinese has no words, or
# its numbers alone: with the same year, any two texts are equal. Words with an accent fall into pieces. `tokenizer=` replaces
# it.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet numpy==2.4.6 rouge-score==0.1.2
cat > "$folder/tried.py" <<'CODE'
from rouge_score.rouge_scorer import RougeScorer

for name, reference, summary in (
    ("a copy", "Кошка спит на окне", "Кошка спит на окне"),
    ("another text with the same year", "В 2024 году выпал снег", "Цена нефти в 2024"),
    ("a copy with the year", "2024年下雪了", "2024年下雪了"),
    ("another word", "Größe", "Gr 7 e"),
    ("a copy in English", "The cat sleeps", "The cat sleeps"),
):
    scores = RougeScorer(["rouge1", "rougeL"]).score(reference, summary)
    print(f"{name}: {[round(score.fmeasure, 2) for score in scores.values()]}")


class Words:
    def tokenize(self, text):
        return text.lower().split()


score = RougeScorer(["rouge1"], tokenizer=Words()).score("Кошка спит на окне", "Кошка спит на окне")["rouge1"]
print("a copy, by words:", score.fmeasure)
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
a copy: [0.0, 0]
another text with the same year: [1.0, 1.0]
a copy with the year: [1.0, 1.0]
another word: [0.8, 0.8]
a copy in English: [1.0, 1.0]
a copy, by words: 1.0
SEEN
