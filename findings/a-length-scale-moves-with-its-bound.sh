#!/usr/bin/env bash
# A length scale that was set to 0.3 is 0.4 or 2.67 after it is given bounds, and 0.2 in a model that loads it without them.
# gpytorch 1.15.2, torch 2.13.0.
# Guess: a bound that the value keeps changes nothing, and load_state_dict gives the value that was saved.
# Seen: what is kept and saved is a raw number, and a bound changes what it stands for: a lower one of 0.1 is added to the
# value, and an interval maps the number into itself. With strict=False, a model without the bound loads the number,
# and has another length scale, without a word.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0
"$folder/env/bin/pip" install --quiet gpytorch==1.15.2
cat > "$folder/tried.py" <<'CODE'
from gpytorch.constraints import GreaterThan, Interval
from gpytorch.kernels import RBFKernel

for bound in (GreaterThan(0.1), Interval(0.1, 10.0)):
    kernel = RBFKernel()
    kernel.lengthscale = 0.3
    kernel.register_constraint("raw_lengthscale", bound)
    print(f"set to 0.3, then {bound}: {kernel.lengthscale.item():.2f}")
bounded, free = RBFKernel(lengthscale_constraint=GreaterThan(0.1)), RBFKernel()
bounded.lengthscale = 0.3
free.load_state_dict(bounded.state_dict(), strict=False)
print(f"bounded, set to 0.3: {bounded.lengthscale.item():.2f}, loaded without the bound: {free.lengthscale.item():.2f}")
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
set to 0.3, then GreaterThan(1.000E-01): 0.40
set to 0.3, then Interval(1.000E-01, 1.000E+01): 2.67
bounded, set to 0.3: 0.30, loaded without the bound: 0.20
SEEN
