#!/usr/bin/env bash
# A tokenizer that was called with a length cuts all texts once it is saved. transformers 5.23.0, tokenizers 0.23.3.
# Guess: truncation=, max_length= and padding= are arguments of one call; save_pretrained saves what the tokenizer was
# made of.
# Seen: the last call is in tokenizer.json: whoever reads the file with tokenizers, or serves it, gets texts cut to that
# length, and padded to it. from_pretrained does not show it.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet transformers==5.23.0 tokenizers==0.23.3
cat > "$folder/tried.py" <<'CODE'
import sys

from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

words = {word: number for number, word in enumerate("[PAD] [UNK] a b c d e".split())}
made = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
made.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=made, pad_token="[PAD]", unk_token="[UNK]")
for call in ({}, {"truncation": True, "max_length": 3, "padding": "max_length"}):
    tokenizer("a b c d e", **call)
    tokenizer.save_pretrained(sys.argv[1])
    read = Tokenizer.from_file(f"{sys.argv[1]}/tokenizer.json")
    again = PreTrainedTokenizerFast.from_pretrained(sys.argv[1])
    print(call, read.encode("a b c d e").ids, read.encode("a").ids, again("a b c d e").input_ids)
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" "$folder" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
{} [2, 3, 4, 5, 6] [2] [2, 3, 4, 5, 6]
{'truncation': True, 'max_length': 3, 'padding': 'max_length'} [2, 3, 4] [2, 0, 0] [2, 3, 4, 5, 6]
SEEN
