"""A grammar of what an attacker may put into a run directory. Loaded by `conftest.py`.

Each attack changes one thing in a directory; `draw` is hypothesis's.
"""

import hashlib
import json
import os
import socket
import struct
import zlib
from contextlib import suppress

from hypothesis import strategies as st

CHECKPOINTS = [f"iteration-{number:010d}" for number in (2, 3, 4)]
TENSORS = ["model.safetensors", "train.safetensors"]
LOGS = ["rows.jsonl", "journal.jsonl", "rows.csv"]
NAMED = ["LATEST", "LOCK", "images", "images/image", "images/image/4.png", *LOGS]
INSIDE = ["manifest.json", "state.json", "rank-00000.json", *TENSORS]
DEVICES = {"/dev/zero": (1, 5), "/dev/full": (1, 7), "/dev/random": (1, 8), "/dev/tty": (5, 0)}
ODD_TEXTS = [
    "",
    "\x1b[2J\x1b]0;t\x07",
    "a\nb",
    "\u202egpj",
    "\ud800",
    "\0",
    "=1+1",
    "x" * 5000,
    "!set",
]
ODD_NAMES = [
    *(b"\xff\xfe.jsonl", b"a\nb.jsonl", b"\x1b[31m.jsonl", "\u202ej.jsonl".encode(), b"x" * 255),
    *(
        b"-rf",
        b"a.jsonl",
        b"%00",
        b"%1b%5b2J",
        b".tmp-LATEST-" + b"0" * 32,
        b"b.jsonl",
        b"rows.csv.tmp",
    ),
    *(b"iteration-0000000009", b"iteration-0000000004.99999", b"iteration-" + b"9" * 240),
    "iteration-\u0662\u0662\u0662\u0662\u0662\u0662\u0662\u0662\u0662\u0662".encode(),
]
RAW = ["DEEP", "DIGITS", "NaN", "1e999", "-Infinity", "tru"]
"""Texts that `json.dumps` does not write: `text_of` puts them in."""
plain = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
trees = st.recursive(
    plain, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner)
)


def odd(draw):
    """A value that no run writes there."""
    momentum = "optimizer.state.0.momentum_buffer"
    name = draw(st.sampled_from(["0.weight", momentum, "optimizer.state"]))
    image = {"kind": "Image", "pixels": {"!tensor": name}, "caption": "\x1b"}
    edges = {"kind": "Histogram", "counts": {"!tensor": name}, "edges": 1}
    tensors = [[{"!tensor": name}] * 400, {"!ndarray": name}, {"!scalar": name}]
    media = [{"!media": image}, [{"!media": image}] * 400, {"!media": edges}]
    tags = [{"!object": 1}, {"!float": "1"}, {"!bytes": "*"}, {"!set": [[]]}]
    kinds = {
        "number": st.sampled_from([-1, 2**31, 2**63 - 1, 2**63, 10**400, -(10**400), 1e308, 0.5]),
        "text": st.sampled_from(ODD_TEXTS),
        "raw": st.sampled_from([f"@{each}@" for each in RAW]),
        "tree": trees,
        "tag": st.sampled_from([*tensors, *media, *tags]),
        "many": st.sampled_from([2000, 20_000]).map(lambda count: [[], {}] * count),
        "names": st.just({str(number): number for number in range(2000)}),
    }
    return draw(kinds[draw(st.sampled_from([*kinds]))])


def places(tree):
    """All lists and objects in a tree with each of their keys."""
    found, left = [], [tree]
    while left:
        value = left.pop()
        keys = value if isinstance(value, dict) else range(len(value))
        found += [(value, key) for key in keys]
        left += [value[key] for key in keys if isinstance(value[key], dict | list)]
    return found


def mutate(draw, tree):
    """Delete, duplicate, swap or replace nodes of a tree."""
    for _ in range(draw(st.integers(1, 3))):
        if not (found := places(tree)):
            return
        value, key = draw(st.sampled_from(found[:2000]))
        act = draw(st.sampled_from(["put", "put", "delete", "swap", "duplicate", "rename"]))
        if act == "put":
            value[key] = odd(draw)
        elif act == "delete":
            del value[key]
        elif act == "swap":
            other, place = draw(st.sampled_from(found[:2000]))
            with suppress(KeyError, IndexError):
                value[key], other[place] = json.loads(json.dumps([other[place], value[key]]))
        elif act == "duplicate" and isinstance(value, list):
            value += json.loads(json.dumps([value[key]] * draw(st.sampled_from([1, 400]))))
        elif isinstance(value, dict):
            value[draw(st.sampled_from(ODD_TEXTS))] = value.pop(key)


def text_of(tree, draw):
    """A tree as JSON, with what `json.dumps` does not write."""
    deep = draw(st.sampled_from([50, 190, 5000, 100_000])) if "@DEEP@" in str(tree)[: 10**6] else 0
    text = json.dumps(tree)
    for raw in RAW:
        made = {"DEEP": "[" * deep + "]" * deep, "DIGITS": "9" * 5000}.get(raw, raw)
        text = text.replace(f'"@{raw}@"', made)
    return text.encode()


def content_of(path):
    """What a file holds that an earlier attack has not made special or large."""
    if not path.is_file() or path.stat().st_size > 10**8:
        raise OSError("changed already")
    return path.read_bytes()


def forge(path, draw, change=lambda body: None):
    """Write a manifest that is right for whatever the files hold, but for one change."""
    body = json.loads(content_of(path / "manifest.json"))
    del body["sha256"]
    for name in body["files"]:
        if (path / name).is_file() and (path / name).stat().st_size < 10**8:
            content = content_of(path / name)
            sums = [zlib.crc32(content[at : at + 2**24]) for at in range(0, len(content), 2**24)]
            body["files"][name] = {"size": len(content), "crc32": sums}
    change(body)
    if isinstance(body, dict):
        body["sha256"] = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
    (path / "manifest.json").write_bytes(text_of(body, draw))


def change_manifest(draw, run):
    forge(run / draw(st.sampled_from(CHECKPOINTS)), draw, lambda body: mutate(draw, body))


def change_state(draw, run):
    path = run / draw(st.sampled_from(CHECKPOINTS[1:]))
    tree = json.loads(content_of(path / "state.json"))
    mutate(draw, tree)
    (path / "state.json").write_bytes(text_of(tree, draw))
    forge(path, draw)


def change_header(draw, run):
    path = run / draw(st.sampled_from(CHECKPOINTS[1:]))
    file = path / draw(st.sampled_from(TENSORS))
    content = content_of(file)
    size = int.from_bytes(content[:8], "little")
    header, data = json.loads(content[8 : 8 + size]), content[8 + size :]
    many = draw(st.sampled_from([0, 0, 0, 0, 0, 0, 0, 0, 0, 3000, 100_000]))
    if many:
        empty = {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]}
        header |= {str(number): empty for number in range(many)}
    else:
        mutate(draw, header)
    text = text_of(header, draw)
    length = draw(st.sampled_from([None, None, None, 0, 2**24, 2**27, 2**63, 2**64 - 1]))
    file.write_bytes(struct.pack("<Q", len(text) if length is None else length) + text + data)
    if length == 2**27:
        os.truncate(file, 2**27 + 100)
    forge(path, draw)


def change_bytes(draw, run):
    checkpoint = draw(st.sampled_from(CHECKPOINTS))
    name = draw(st.sampled_from([*LOGS, *(f"{checkpoint}/{each}" for each in INSIDE)]))
    content = bytearray(content_of(run / name))
    for _ in range(draw(st.integers(1, 5))):
        at = draw(st.integers(0, max(0, len(content) - 1)))
        length = draw(st.sampled_from([0, 1, 1, 7, 10**6]))
        content[at : at + length] = draw(st.binary(max_size=9))
    (run / name).write_bytes(content)
    if name.startswith(checkpoint) and not name.endswith("manifest.json"):
        forge(run / checkpoint, draw)


def change_log(draw, run):
    """Rows and lines of a journal, of fields that are right, odd or missing."""
    name = draw(st.sampled_from(["rows.jsonl", "journal.jsonl"]))
    lines = content_of(run / name).splitlines(keepends=True)
    usual = [json.loads(line) for line in lines]
    for _ in range(draw(st.integers(1, 4))):
        line = json.loads(json.dumps(draw(st.sampled_from(usual))))
        if draw(st.integers(0, 19)) == 0:
            line |= {f"m{n}/loss": n for n in range(draw(st.sampled_from([1000, 5000])))}
        else:
            mutate(draw, line)
        text = text_of(line, draw) + draw(st.sampled_from([b"\n", b"\n", b""]))
        text *= draw(st.sampled_from([1, 1, 1, 3, 1000])) if len(text) < 2000 else 1
        lines.insert(draw(st.integers(0, len(lines))), text)
    (run / draw(st.sampled_from([name, name, "a.jsonl"]))).write_bytes(b"".join(lines))


def change_table(draw, run):
    rows = content_of(run / "rows.csv").splitlines(keepends=True)
    cells = [b'"', b'"a\nb"', b"x" * 200_000, b"1e999", b"\0", b"\r", b"=1", b"\xff", b"," * 1000]
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(rows) - 1))
        rows[at] = draw(st.sampled_from(cells)) + rows[at][draw(st.integers(0, 9)) :]
    (run / "rows.csv").write_bytes(b"".join(rows) * draw(st.sampled_from([1, 1, 100])))


def place_special(draw, run):
    """A link, a pipe, a device, a socket, a directory or a huge file with nothing in it."""
    checkpoint = draw(st.sampled_from([run, run, *(run / each for each in CHECKPOINTS)]))
    path = checkpoint / draw(st.sampled_from(NAMED if checkpoint == run else INSIDE))
    if draw(st.integers(0, 9)) == 0:
        path = checkpoint
    if path.exists():
        path.rename(run.parent / f"moved-{path.name}-{len(os.listdir(run.parent))}")
    kind = draw(
        st.sampled_from(["link", "pipe", "device", "socket", "directory", "huge", "closed"])
    )
    if kind == "link":
        targets = [*DEVICES, ".", "..", path.name, "/etc/passwd", "nowhere", run.parent / "other"]
        path.symlink_to(draw(st.sampled_from(targets)))
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        numbers = DEVICES[draw(st.sampled_from([*DEVICES]))]
        with suppress(PermissionError):
            os.mknod(path, 0o020666, os.makedev(*numbers))
    elif kind == "socket":
        with suppress(OSError), socket.socket(socket.AF_UNIX) as made:
            made.bind(os.path.relpath(path))
    elif kind == "directory":
        path.mkdir(exist_ok=True)
    else:
        path.write_bytes(draw(st.sampled_from([b"", b"{", b'{"iteration": 1}\n'])))
        if kind == "closed":
            path.chmod(0)
        else:
            with suppress(OSError):  # no file system takes any size
                os.truncate(path, draw(st.sampled_from([2**31, 2**40, 2**43 - 1, 2**63 - 1])))
    with suppress(OSError, ValueError, KeyError, TypeError):
        if checkpoint != run and path.name != "manifest.json" and kind == "huge":
            size = path.stat().st_size
            zeros, count = zlib.crc32(bytes(2**24)), -(-size // 2**24)
            sums = [zlib.crc32(path.open("rb").read(2**24)), *[zeros] * (min(count, 300_000) - 2)]
            sums += [zlib.crc32(bytes(size % 2**24 or 2**24))] * (count > 1)
            forge(checkpoint, draw, lambda body: body["files"].update(
                {path.name: {"size": size, "crc32": sums}}
            ))  # fmt: skip


def place_names(draw, run):
    """Files and directories of odd names, or very many."""
    folder = os.fsencode(run / draw(st.sampled_from([".", ".", "images", CHECKPOINTS[-1]])))
    for name in draw(st.lists(st.sampled_from(ODD_NAMES), min_size=1, max_size=4)):
        path = os.path.join(folder, name)
        if os.path.lexists(path):
            continue
        if draw(st.booleans()):
            os.mkdir(path)
            with open(os.path.join(path, b"3.png"), "wb") as file:
                file.write(b"\x89PNG\r\n\x1a\n" + bytes(16))
        else:
            with open(path, "wb") as file:
                file.write(b'{"iteration": 1, "loss": 1}\n')
    if draw(st.integers(0, 29)) == 0:
        many = draw(st.sampled_from(["{}.jsonl", "iteration-{:010d}", "images/image/{}.png", "{}"]))
        for number in range(10, 300):
            path = run / many.format(number)
            (path.mkdir if "iteration" in many else path.touch)()
    if draw(st.integers(0, 4)) == 0:
        times = [0, -1, 2**31, 2**33, 2**40, 2**60]
        when = draw(st.sampled_from(times))
        with suppress(OSError, OverflowError):
            os.utime(run / CHECKPOINTS[-1] / "manifest.json", (when, when))


def lock(draw, run):
    owner = {"process": odd(draw), "host": "\x1b[2J\u202e", "since": odd(draw)}
    (run / "LOCK").write_bytes(text_of(owner, draw))


NUMBERS = [-1, 0, 1, 2, 3, 7, 2**31, 2**62, 2**63, 10**30, 0.5, True, None, "1", [], {}]
OF_RANKS = [
    "rank-00000.safetensors",
    "rank-00001.safetensors",
    "rank-00000.json",
    "rank-00001.json",
]


def change_pieces(draw, run):
    """Cuts with holes, overlaps and huge numbers; unknown ranks; tensors that are not there."""
    path = run / draw(st.sampled_from(CHECKPOINTS[1:]))
    table = json.loads(content_of(path / "pieces.json"))
    for _ in range(draw(st.integers(1, 2))):
        listed = draw(st.sampled_from([*table["cuts"], *table["ranks"]]))
        file = draw(st.sampled_from([*table["tensors"]]))
        name = draw(st.sampled_from([*table["tensors"][file]]))
        entry = table["tensors"][file][name]
        act = draw(
            st.sampled_from(["number", "add", "drop", "swap", "entry", "name", "many", "any"])
        )
        at = draw(st.integers(0, len(listed) - 1)) if listed else 0
        if act == "number" and listed:
            listed[at] = draw(st.sampled_from(NUMBERS))
        elif act == "add":
            listed.insert(at, draw(st.sampled_from(NUMBERS)))
        elif act == "drop" and listed:
            del listed[at]
        elif act == "swap":
            listed.reverse()
        elif act == "entry":
            values = [
                *NUMBERS,
                [0],
                [1, 0],
                [0] * 100,
                [0] * 10**5,
                "torch.float64",
                "torch.bfloat16",
            ]
            entry[draw(st.integers(0, 2))] = draw(st.sampled_from(values))
        elif act == "name":
            names = [*ODD_TEXTS, "0.weight", "2.weight", "/memory"]
            table["tensors"][draw(st.sampled_from([file, "model", "x"]))][
                draw(st.sampled_from(names))
            ] = table["tensors"][file].pop(name)
        elif act == "many":
            many = draw(st.sampled_from([100, 20_000]))
            table["tensors"][file] |= {str(number): entry for number in range(many)}
            table["ranks"].append([0] * many)
        else:
            mutate(draw, table)
    (path / "pieces.json").write_bytes(text_of(table, draw))
    forge(path, draw)


def change_files_of_ranks(draw, run):
    """Cut, swap, remove, take older ones, or flip bytes; the manifest may fit or not."""
    path = run / draw(st.sampled_from(CHECKPOINTS[1:]))
    first, second = draw(st.permutations([*OF_RANKS, "pieces.json"]))[:2]
    content = content_of(path / first)
    act = draw(st.sampled_from(["cut", "swap", "remove", "older", "flip", "header", "tree"]))
    if act == "cut":
        (path / first).write_bytes(content[: draw(st.integers(0, len(content)))])
    elif act == "swap":
        (path / first).write_bytes(content_of(path / second))
        (path / second).write_bytes(content)
    elif act == "remove":
        (path / first).unlink()
    elif act == "older":
        (path / first).write_bytes(content_of(run / CHECKPOINTS[0] / first))
    elif act == "tree" or first.endswith("json"):
        name = draw(st.sampled_from(OF_RANKS[2:]))
        tree = json.loads(content_of(path / name))
        mutate(draw, tree)
        (path / name).write_bytes(text_of(tree, draw))
    elif act == "header":
        size = int.from_bytes(content[:8], "little")
        header = json.loads(content[8 : 8 + size])
        mutate(draw, header)
        text = text_of(header, draw)
        (path / first).write_bytes(struct.pack("<Q", len(text)) + text + content[8 + size :])
    else:
        at = draw(st.integers(0, len(content) - 1))
        flipped = bytes([content[at] ^ draw(st.integers(1, 255))])
        (path / first).write_bytes(content[:at] + flipped + content[at + 1 :])
    if draw(st.booleans()):
        forge(path, draw)


def change_world(draw, run):
    """Another number of ranks in the manifest, and files of ranks that it does not list."""
    sizes = [0, 1, 3, 4096, 2**31, 2**62, 2**63, -1, 1.5, "2"]

    def change(body):
        body["world_size"] = draw(st.sampled_from(sizes))
        if draw(st.booleans()):
            body["files"].pop(draw(st.sampled_from([*OF_RANKS, "pieces.json"])), None)

    forge(run / draw(st.sampled_from(CHECKPOINTS[1:])), draw, change)


ATTACKS_ON_PIECES = [change_pieces, change_pieces, change_files_of_ranks, change_world]
ATTACKS = [
    *(change_manifest, change_state, change_header, change_bytes, change_log, change_table),
    *(place_special, place_names, lock),
]


def attack(draw, run, attacks=ATTACKS):
    """One to three attacks; those that no longer have what they change do nothing."""
    for _ in range(draw(st.integers(1, 3))):
        act = draw(st.sampled_from(attacks))
        with suppress(
            OSError, KeyError, IndexError, TypeError, ValueError, AttributeError, RecursionError
        ):
            act(draw, run)
