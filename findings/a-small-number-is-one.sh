#!/usr/bin/env bash
# A right answer of 0.00001 gets no reward, and one of 1 gets it. math-verify 0.9.0.
# Guess: parse() reads what str() of Python's numbers writes, so that "1e-05" is 0.00001 and "2.5e+16" is 25000000000000000; or it gives
# nothing.
# Seen: it stops before the e: "1e-05" is 1, and "6.02e23" is 6.02. Python writes numbers so below 0.0001 and from 1e16 on: where the
# answers of a data set are numbers, those of few and of many digits reward a wrong answer and punish the right one, in each
# notation. `$10^{-5}$` and `0.00001` are read as they are.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet math-verify==0.9.0 latex2sympy2_extended==1.11.0
cat > "$folder/tried.py" <<'CODE'
from math_verify import parse, verify

for number, answers in (
    (0.0001, ("0.0001", "$10^{-4}$", "1")),
    (0.00001, ("0.00001", "$10^{-5}$", "1")),
    (2.5e16, ("25000000000000000", "$2.5 \\times 10^{16}$", "2.5")),
):
    truth = parse(str(number))
    print(f"{number}: read as {float(truth[0])}", {each: verify(truth, parse(each)) for each in answers})
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" "$folder" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
0.0001: read as 0.0001 {'0.0001': True, '$10^{-4}$': True, '1': False}
1e-05: read as 1.0 {'0.00001': False, '$10^{-5}$': False, '1': True}
2.5e+16: read as 2.5 {'25000000000000000': False, '$2.5 \\times 10^{16}$': False, '2.5': True}
SEEN
