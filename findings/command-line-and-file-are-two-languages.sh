#!/usr/bin/env bash
# The same text is a number in the file and a word on the command line. hydra-core 1.3.8, omegaconf 2.3.1, PyYAML 6.0.3.
# Guess: `key=value` on the command line means what `key: value` means in the YAML file that it overrides.
# Seen: `time: 12:30:00` in a file is 45000, `010` is 8, and `no` is False; on the command line they are texts. NaN is a
# text in the file and a number on the command line, .nan the other way round.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet hydra-core==1.3.8 omegaconf==2.3.1 pyyaml==6.0.3
cat > "$folder/tried.py" <<'CODE'
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf

parser = OverridesParser.create()
for text in ("1e-3", "12:30:00", "010", "0x10", "no", "NaN", ".nan", ".inf"):
    in_file = OmegaConf.create(f"key: {text}")["key"]
    print(text, repr(in_file), repr(parser.parse_override(f"key={text}").value()))
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" "$folder" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
1e-3 0.001 0.001
12:30:00 45000 '12:30:00'
010 8 '010'
0x10 16 '0x10'
no False 'no'
NaN 'NaN' nan
.nan nan '.nan'
.inf inf '.inf'
SEEN
