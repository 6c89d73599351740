#!/usr/bin/env bash
# The same texts give another vocabulary each time. tokenizers 0.23.3.
# Guess: WordPiece is trained as BPE is, where the same texts give the same tokens and numbers.
# Seen: three trainings in one process give three vocabularies, with one thread too. So token numbers of a model that
# was trained before mean other tokens after the tokenizer was made again. BPE, Unigram and WordLevel give the same.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet tokenizers==0.23.3
cat > "$folder/tried.py" <<'CODE'
import os
import random

os.environ["RAYON_NUM_THREADS"] = "1"
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

random.seed(0)
words = ["".join(random.choices("abcdefghij", k=random.randint(2, 8))) for _ in range(2000)]
lines = [" ".join(random.choices(words, k=10)) for _ in range(2000)]
for name in ("BPE", "Unigram", "WordLevel", "WordPiece"):
    trained = set()
    for _ in range(3):
        tokenizer = Tokenizer(getattr(models, name)())
        tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
        trainer = getattr(trainers, f"{name.capitalize() if name == 'BPE' else name}Trainer")(vocab_size=1000, show_progress=False)
        tokenizer.train_from_iterator(lines, trainer)
        trained.add(tuple(sorted(tokenizer.get_vocab().items())))
    print(name, len(trained), "of 3 differ" if len(trained) > 1 else "vocabulary of 3")
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" "$folder" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
BPE 1 vocabulary of 3
Unigram 1 vocabulary of 3
WordLevel 1 vocabulary of 3
WordPiece 3 of 3 differ
SEEN
