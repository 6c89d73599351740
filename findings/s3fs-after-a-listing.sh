#!/usr/bin/env bash
# After a listing, s3fs answers from it, and each method differently. s3fs 2026.9.0, moto 5.2.5.
# Guess: an object store is asked; or at least all methods agree.
# Seen: once a prefix is listed, what another process puts there does not `exist` and is not in `glob`, but
# `find` has it; what another one deletes still exists; a changed object cannot be opened (FileExpired) though
# `cat` reads the new one. S3FileSystem(...) made again is the same object with the same listing.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet s3fs==2026.9.0 moto[server]==5.2.5
cat > "$folder/tried.py" <<'CODE'
import logging
import os
logging.disable(logging.CRITICAL)
os.environ |= {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x", "AWS_DEFAULT_REGION": "us-east-1"}
import s3fs
from moto.server import ThreadedMotoServer

server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
server.start()
url = f"http://127.0.0.1:{server._server.server_port}"
ours = s3fs.S3FileSystem(endpoint_url=url)
other = s3fs.S3FileSystem(endpoint_url=url, skip_instance_cache=True)
print("made again is the same", s3fs.S3FileSystem(endpoint_url=url) is ours)
ours.mkdir("bucket")
other.pipe({"bucket/run/latest": b"step 9", "bucket/run/old": b"1"})
ours.ls("bucket/run")
other.pipe({"bucket/run/latest": b"step 10", "bucket/run/new": b"1"})
other.rm("bucket/run/old")
print("a new one: exists", ours.exists("bucket/run/new"), "glob", "bucket/run/new" in ours.glob("bucket/run/*"),
      "find", "bucket/run/new" in ours.find("bucket/run"))
print("a deleted one: exists", ours.exists("bucket/run/old"))
print("a changed one: cat", ours.cat("bucket/run/latest"), "size", ours.info("bucket/run/latest")["size"])
try:
    ours.open("bucket/run/latest").read()
except OSError as error:
    print("a changed one: open", type(error).__name__)
server.stop()
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
made again is the same True
a new one: exists False glob False find True
a deleted one: exists True
a changed one: cat b'step 10' size 6
a changed one: open FileExpired
SEEN
