#!/usr/bin/env bash
# A backport changes what the standard library gives. importlib_metadata 9.1.0, torchsampler 0.1.2, Python 3.11.
# Guess: `importlib.metadata` of Python 3.11 gives None for a field that a package lacks, whatever is imported beside it.
# Seen: once any package has imported importlib_metadata, the standard function gives objects of that one, which raise
# KeyError. torchsampler reads such a field as it is imported, so whether it can be imported depends on what was before.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet importlib_metadata==9.1.0
"$folder/env/bin/pip" install --quiet --no-deps torchsampler==0.1.2
cat > "$folder/tried.py" <<'CODE'
from importlib.metadata import metadata

print("before:", metadata("torchsampler")["homepage"])
import importlib_metadata

try:
    print("after:", metadata("torchsampler")["homepage"])
except KeyError as error:
    print("after: KeyError", error)
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
before: None
after: KeyError 'homepage'
SEEN
