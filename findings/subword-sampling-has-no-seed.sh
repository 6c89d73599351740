#!/usr/bin/env bash
# A seed does not fix the draws of subword sampling. sentencepiece 0.2.3.
# Guess: set_random_generator_seed(5) gives the same draws in each process, or if it does not count, other draws each
# time.
# Seen: within a process the same draws come again after the same seed, as a test would try it. Each process has others,
# from the same model file and seed. nbest_encode gives the same list everywhere, to draw from with a generator of one's
# own.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet sentencepiece==0.2.3
cat > "$folder/tried.py" <<'CODE'
import random
import subprocess
import sys

import sentencepiece

file, text = f"{sys.argv[1]}/model", "abcde fgh hgf edcba abab cdcd"
if len(sys.argv) == 2:
    random.seed(0)
    words = ["".join(random.choices("abcdefgh", k=random.randint(2, 6))) for _ in range(60)]
    lines = [" ".join(random.choices(words, k=6)) for _ in range(400)]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_prefix=file, vocab_size=60, num_threads=1, minloglevel=2
    )
    runs = [subprocess.check_output([sys.executable, __file__, sys.argv[1], "draw"], text=True) for _ in range(4)]
    print("twice after one seed, in one process:", {run.split("|")[0] for run in runs})
    print("after one seed, in 4 processes:", "equal" if len({run.split("|")[1] for run in runs}) == 1 else "different")
    print("nbest_encode, in 4 processes:", "equal" if len({run.split("|")[2] for run in runs}) == 1 else "different")
else:
    model = sentencepiece.SentencePieceProcessor(model_file=f"{file}.model")
    draws = []
    for _ in range(2):
        sentencepiece.set_random_generator_seed(5)
        draws.append([model.encode(text, enable_sampling=True, alpha=0.1, nbest_size=-1) for _ in range(20)])
    print("equal" if draws[0] == draws[1] else "different", draws[0], model.nbest_encode(text, nbest_size=8), sep="|", end="")
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" "$folder" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
twice after one seed, in one process: {'equal'}
after one seed, in 4 processes: different
nbest_encode, in 4 processes: equal
SEEN
