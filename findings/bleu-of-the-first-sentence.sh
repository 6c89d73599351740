#!/usr/bin/env bash
# A system that is wrong in all sentences but the first has a BLEU of 100. sacrebleu 2.6.0.
# Guess: corpus_bleu takes a list of references for each sentence, as torchmetrics and evaluate do, or refuses that.
# Seen: it takes a list of sentences for each set of references. Of lists the other way round, it reads the first sentence's
# references alone, and leaves out all other sentences. corpus_chrf and corpus_ter do the same.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet sacrebleu==2.6.0
cat > "$folder/tried.py" <<'CODE'
import sacrebleu

system = ["the cat sat on the mat", "wrong words stand here", "and nothing of this is right"]
one = "the cat sat on the mat"
for_each_sentence = [[one], ["a dog ran in the park"], ["yes we can do it well"]]
for_each_set = [[one, "a dog ran in the park", "yes we can do it well"]]
for name, score in {"BLEU": sacrebleu.corpus_bleu, "chrF": sacrebleu.corpus_chrf, "TER": sacrebleu.corpus_ter}.items():
    print(f"{name}: a list for each sentence {score(system, for_each_sentence).score:.1f},", f"a list for each set {score(system, for_each_set).score:.1f}")
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
BLEU: a list for each sentence 100.0, a list for each set 35.0
chrF: a list for each sentence 100.0, a list for each set 41.0
TER: a list for each sentence 0.0, a list for each set 66.7
SEEN
