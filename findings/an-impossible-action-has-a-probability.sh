#!/usr/bin/env bash
# An action of probability 0 has a log-probability of -15.94, and one of 1e-12 as well. torch 2.13.0, CPU.
# Guess: Categorical(probs=...) and Categorical(logits=probs.log()) are one distribution.
# Seen: probabilities are cut off at 1.2e-7 before their logarithm is taken, and have no gradient there: a masked action, or a
# token of a sure teacher, is as likely as any other rare one, and a ratio of two policies is 1. Logits keep them, in
# Bernoulli too.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6
cat > "$folder/tried.py" <<'CODE'
import torch
from torch.distributions import Bernoulli, Categorical

for rare in (1e-6, 1e-12, 0.0):
    seen = []
    for kind in ("probs", "logits"):
        probs = torch.tensor([1.0 - rare, rare], requires_grad=True)
        given = probs if kind == "probs" else probs.log()
        log_prob = Categorical(**{kind: given}).log_prob(torch.tensor(1))
        log_prob.backward()
        seen.append(f"{kind} {log_prob.item():.2f}, gradient {probs.grad[1].item():.3g}")
    print(f"{rare}: {'; '.join(seen)}")
of_probs = Bernoulli(probs=torch.tensor(1e-12)).log_prob(torch.tensor(1.0))
of_logits = Bernoulli(logits=torch.tensor(1e-12).logit()).log_prob(torch.tensor(1.0))
print(f"Bernoulli of 1e-12: probs {of_probs:.2f}, logits {of_logits:.2f}")
new, old = torch.tensor([1.0, 1e-9]), torch.tensor([1.0, 1e-12])
ratio = (Categorical(probs=new).log_prob(torch.tensor(1)) - Categorical(probs=old).log_prob(torch.tensor(1))).exp()
print(f"ratio of 1e-9 and 1e-12: {ratio:.1f}")
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
1e-06: probs -13.82, gradient 1e+06; logits -13.82, gradient 1e+06
1e-12: probs -15.94, gradient 0; logits -27.63, gradient 1e+12
0.0: probs -15.94, gradient 0; logits -inf, gradient inf
Bernoulli of 1e-12: probs -15.94, logits -27.63
ratio of 1e-9 and 1e-12: 1.0
SEEN
