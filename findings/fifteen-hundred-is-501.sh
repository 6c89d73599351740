#!/usr/bin/env bash
# An answer of $1\,500$ is equal to 501, and three hours are three minutes. math-verify 0.9.0.
# Guess: a space between groups of three digits is read as the comma is, as "1 500" outside of a formula, or the answer is not read;
# an answer in another unit is another answer.
# Seen: within $...$ and \boxed{...}, a number behind a space is added, as in a half behind a whole number: $1\,500$ is 1 + 500, and
# $1\,000$ is 0. As the truth, it rewards a wrong answer and punishes the right one; as an answer, it is wrong. Units are dropped on
# both sides, without a conversion.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet math-verify==0.9.0 latex2sympy2_extended==1.11.0
cat > "$folder/tried.py" <<'CODE'
from math_verify import parse, verify

for truth, answers in (
    ("1 500", ("1500", "501")),
    ("$1{,}500$", ("1500", "501")),
    (r"$1\,500$", ("1500", "501")),
    (r"\boxed{25\ 300}", ("25300", "325")),
    (r"\boxed{1\,000}", ("1000", "0", r"\boxed{7\,000}")),
    ("3 hours", ("180 minutes", "3 minutes")),
    (r"\boxed{3\text{ km}}", (r"\boxed{3000\text{ m}}", r"\boxed{3\text{ m}}")),
):
    print(f"{truth} is", {each: verify(parse(truth), parse(each)) for each in answers})
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" "$folder" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
1 500 is {'1500': True, '501': False}
$1{,}500$ is {'1500': True, '501': False}
$1\,500$ is {'1500': False, '501': True}
\boxed{25\ 300} is {'25300': False, '325': True}
\boxed{1\,000} is {'1000': False, '0': True, '\\boxed{7\\,000}': True}
3 hours is {'180 minutes': False, '3 minutes': True}
\boxed{3\text{ km}} is {'\\boxed{3000\\text{ m}}': False, '\\boxed{3\\text{ m}}': True}
SEEN
