#!/usr/bin/env bash
# Whether packed texts see each other depends on a cache, and on a mask of ones. transformers 5.23.0, torch 2.13.0, CPU.
# Guess: position_ids that begin again keep packed texts apart; a mask of ones says nothing, and use_cache is about speed.
# Seen: texts are kept apart if there is neither a cache nor a mask. use_cache=True is the default, also in training mode, and
# an attention_mask of ones, as tokenizers and collators give it, has the same effect: each text attends to those before it.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6
"$folder/env/bin/pip" install --quiet transformers==5.23.0
cat > "$folder/tried.py" <<'CODE'
import torch
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

small = {"num_hidden_layers": 2, "num_attention_heads": 2, "hidden_size": 32}
for model_type, config in (
    (LlamaForCausalLM, LlamaConfig(vocab_size=50, intermediate_size=32, initializer_range=0.5, **small)),
    (GPT2LMHeadModel, GPT2Config(vocab_size=50, n_embd=32, n_layer=2, n_head=2, initializer_range=0.5)),
):
    torch.manual_seed(0)
    model = model_type(config).eval()
    first, second = torch.randint(50, (1, 5)), torch.randint(50, (1, 4))
    packed = {"input_ids": torch.cat([first, second], 1), "position_ids": torch.tensor([[0, 1, 2, 3, 4, 0, 1, 2, 3]])}
    alone = model(second).logits
    ones = {"attention_mask": torch.ones_like(packed["input_ids"])}
    print(model_type.__name__)
    for name, more in (
        ("as it is", {}),
        ("use_cache=False", {"use_cache": False}),
        ("use_cache=False and a mask of ones", {"use_cache": False, **ones}),
    ):
        same = torch.allclose(model(**packed, **more).logits[:, 5:], alone, atol=1e-4)
        print(f"  {name}: the second text is {'as alone' if same else 'another one'}")
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
LlamaForCausalLM
  as it is: the second text is another one
  use_cache=False: the second text is as alone
  use_cache=False and a mask of ones: the second text is another one
GPT2LMHeadModel
  as it is: the second text is another one
  use_cache=False: the second text is as alone
  use_cache=False and a mask of ones: the second text is another one
SEEN
