"""A process copies beside a run, which goes on elsewhere to the same bits."""

import json
import os
import shutil
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
import torch

from camshaft import Engine, Events, supervised
from camshaft.handlers import Checkpoint, Export, Journal, JSONLines, Mirror, checkpoints, latest

from .conftest import engine_of
from .s3 import Proxy, environment, server

SCRIPT = Path(__file__).with_name("train.py")


def weights(engine):
    return torch.cat([each.detach().flatten() for each in engine.objects["model"].parameters()])


@pytest.mark.quick(first=1)
@pytest.mark.parametrize("first", [True, False])
def test_a_machine_with_an_empty_disk_goes_on_as_the_run_that_nobody_interrupted(
    tmp_path, data, first
):
    whole = supervised_alone = engine_of(tmp_path / "whole", tmp_path / "store0")
    supervised_alone.run(data, max_epochs=3)
    run, store = tmp_path / "run", tmp_path / "store"
    logs = [JSONLines(run / "rows.jsonl", when=Events.ITERATION_COMPLETED), Journal(run)]
    engine_of(run, store, *logs, first=first).run(data, max_epochs=2)
    before = (run / "rows.jsonl").read_text()
    shutil.rmtree(run)
    engine = engine_of(run, store, *logs, first=first)
    engine.run(data, max_epochs=3)
    assert torch.equal(weights(engine), weights(whole))
    assert (run / "rows.jsonl").read_text().startswith(before)
    lines = [json.loads(line) for line in (run / "journal.jsonl").read_text().splitlines()]
    told = [line["event"] for line in lines if line["event"] != "saving"]
    assert told == ["started", "completed", "resumed", "completed", "mirrored"]
    assert lines[-1]["behind"] == ""


@pytest.mark.timeout(60)
@pytest.mark.parametrize("said", [b"hello\n", b'\xff{"ready":', b"[]\n"])
def test_what_something_else_prints_in_the_process_that_copies_is_no_message(
    tmp_path, data, monkeypatch, said
):
    (tmp_path / "sitecustomize.py").write_text(f"import os; os.write(1, {said!r})")
    monkeypatch.syspath_prepend(tmp_path)
    engine_of(tmp_path / "run", tmp_path / "store").run(data, max_epochs=1)
    assert [saved.manifest.iteration for saved in checkpoints(tmp_path / "store")] == [3]


@pytest.mark.timeout(60)
def test_a_process_that_is_killed_in_the_middle_of_a_message_is_told(tmp_path, data, monkeypatch):
    script = "import os; os.write(1, b'{\"rea'); os.kill(os.getpid(), 9)"
    (tmp_path / "sitecustomize.py").write_text(script)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(OSError, match="the process that copies has ended"):
        engine_of(tmp_path / "run", tmp_path / "store").run(data, max_epochs=1)


@pytest.fixture(scope="module")
def moto():
    with server() as port:
        yield port


@pytest.fixture
def s3(moto):
    """A proxy before the server, with a new bucket and the address of a run in it."""
    import boto3

    with Proxy(moto) as proxy:
        proxy.env = environment(proxy.url)
        bucket = f"bucket-{proxy.server_port}"
        keys = {"aws_access_key_id": "testing", "aws_secret_access_key": "hush-hush"}
        proxy.client = boto3.client(
            "s3", endpoint_url=f"http://127.0.0.1:{moto}", region_name="us-east-1", **keys
        )
        proxy.client.create_bucket(Bucket=bucket)
        proxy.bucket, proxy.address = bucket, f"s3://{bucket}/run"
        yield proxy
        proxy.going.set()
        proxy.client.close()
        proxy.shutdown()


def objects(s3):
    found = s3.client.list_objects_v2(Bucket=s3.bucket).get("Contents", [])
    return {each["Key"].removeprefix("run/"): each["Size"] for each in found}


def shown(s3):
    """The iterations of the checkpoints that the store shows; each is whole."""
    names, found = objects(s3), []
    for name in names:
        if name.endswith("/manifest.json"):
            body = s3.client.get_object(Bucket=s3.bucket, Key=f"run/{name}")["Body"]
            manifest = json.loads(body.read())
            place = name.split("/")[0]
            for file, sums in manifest["files"].items():
                assert names[f"{place}/{file}"] == sums["size"]
            found.append(manifest["iteration"])
    return sorted(found)


@pytest.fixture(scope="module")
def expected(processes, tmp_path_factory):
    """What the script prints at its end if nothing happens."""
    folder = tmp_path_factory.mktemp("expected")
    result = processes.run(SCRIPT, folder / "run", folder / "store")
    return result.stdout.splitlines()[-1]


@pytest.mark.slow
def test_a_run_that_is_killed_goes_on_from_s3_in_an_empty_directory(
    processes, s3, tmp_path, expected
):
    for number in range(3):
        directory = tmp_path / f"machine{number}"
        with processes.start(SCRIPT, directory, s3.address, 3, 0.05, env=s3.env) as process:
            assert process.stdout.readline().startswith("began")
            while len(shown(s3)) < 1 and process.poll() is None:
                time.sleep(0.02)
            time.sleep(0.2 * number)
            process.send_signal(signal.SIGKILL, group=True)
            process.wait()
        shown(s3)
    before = max(shown(s3))
    result = processes.run(SCRIPT, tmp_path / "last", s3.address, env=s3.env)
    lines = result.stdout.splitlines()
    assert int(lines[0].split()[1]) >= before > 0
    assert lines[-1] == expected
    assert shown(s3)[-1] == 15
    assert not [name for name in objects(s3) if "draft" in name or ".tmp-" in name]


@pytest.mark.slow
def test_a_preempted_run_is_in_the_store_when_its_process_has_ended(
    processes, s3, tmp_path, expected
):
    with processes.start(SCRIPT, tmp_path / "a", s3.address, 3, 0.2, env=s3.env) as process:
        process.stdout.readline()
        time.sleep(0.5)
        process.send_signal(signal.SIGTERM, group=True)
        assert process.wait() == 143
    saved = checkpoints(tmp_path / "a").latest()
    assert max(shown(s3)) == saved.manifest.iteration
    body = s3.client.get_object(Bucket=s3.bucket, Key="run/journal.jsonl")["Body"].read()
    assert '"interrupted"' in body.decode()
    result = processes.run(SCRIPT, tmp_path / "b", s3.address, env=s3.env)
    assert result.stdout.splitlines()[0] == f"began {saved.manifest.iteration}"
    assert result.stdout.splitlines()[-1] == expected


def sometimes(fault, which="PUT", every=2):
    count = iter(range(10**9))
    return lambda request: fault if request.startswith(which) and next(count) % every == 0 else None


@pytest.mark.slow
@pytest.mark.parametrize(
    "fault",
    [
        pytest.param("slow down", marks=pytest.mark.soak),
        "forget",
        pytest.param("change", marks=pytest.mark.soak),
    ],
)
def test_a_store_that_fails_or_lies_neither_ends_nor_changes_the_run_and_has_all_in_the_end(
    processes, s3, tmp_path, expected, fault
):
    with processes.start(SCRIPT, tmp_path / "a", s3.address, 3, 0.1, 60, env=s3.env) as process:
        process.stdout.readline()
        s3.fault = sometimes(fault, "GET" if fault == "change" else "PUT")
        time.sleep(2)
        s3.fault = lambda request: None
        result = process.result()
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines()[-1] == expected
    assert shown(s3)[-1] == 15
    assert result.stderr.count("cannot be used now") == result.stderr.count("takes copies again")
    assert "holds all of the run" in result.stderr
    assert "hush" not in result.stderr
    result = processes.run(SCRIPT, tmp_path / "b", s3.address, env=s3.env)
    assert result.stdout.splitlines()[-1] == expected


@pytest.mark.slow
def test_each_way_of_failing_is_told_once_in_the_log_and_the_journal_and_the_run_goes_on(
    processes, s3, tmp_path
):
    run, keys = tmp_path / "a", tmp_path / "keys"

    def credentials(name):
        keys.write_text(f"[default]\naws_access_key_id={name}\naws_secret_access_key=hush-hush\n")

    def lines(name):
        return (run / name).read_text().splitlines()

    def told():
        found = [json.loads(line) for line in lines("journal.jsonl")]
        return [line["said"] for line in found if line["event"] == "mirror"]

    def wait_for(what):
        while not what():
            assert process.poll() is None
            time.sleep(0.02)

    def remove():
        while True:
            for name in objects(s3):
                s3.client.delete_object(Bucket=s3.bucket, Key=f"run/{name}")
            with suppress(s3.client.exceptions.ClientError):  # something was copied meanwhile
                s3.client.delete_bucket(Bucket=s3.bucket)
                break

    def kill():
        (copier,) = (
            each
            for each in psutil.Process(process.pid).children(recursive=True)
            if any("mirror.copying" in word for word in each.cmdline())
        )
        copier.kill()

    def read_only():
        s3.fault = lambda request: None if request.startswith(("GET", "HEAD")) else "read only"

    def expire():
        s3.fault = lambda request: "expired" if s3.key == "old" else None

    def heal():
        s3.fault = lambda request: None

    def make():
        s3.client.create_bucket(Bucket=s3.bucket)

    ways = [
        (read_only, heal, "Access Denied"),
        (expire, lambda: credentials("new"), "PermissionError: "),  # a HEAD says no more
        (remove, make, "FileNotFoundError"),
        (kill, lambda: None, "had ended; another goes on"),
    ]
    credentials("old")
    env = {**s3.env, "AWS_SHARED_CREDENTIALS_FILE": str(keys), "LEVEL": "WARNING"}
    env = {name: text for name, text in env.items() if "KEY" not in name}
    with processes.start(SCRIPT, run, s3.address, 10_000, 0.1, 60, env=env) as process:
        process.stdout.readline()
        for number, (begin, end, said) in enumerate(ways):
            wait_for(lambda: shown(s3))
            begin()
            wait_for(lambda number=number: len(told()) > 2 * number)
            assert said in told()[-1]
            iterations = len(lines("rows.jsonl"))
            wait_for(lambda before=iterations: len(lines("rows.jsonl")) >= before + 10)
            assert len(told()) == 2 * number + 1
            end()
            if begin is not kill:
                wait_for(lambda number=number: len(told()) > 2 * number + 1)
                assert told()[-1].endswith("takes copies again")
        process.send_signal(signal.SIGTERM, group=True)
        result = process.result()
    assert result.returncode == 143
    assert result.stderr.count("cannot be used now") == 3
    assert result.stderr.count("takes copies again") == 3
    assert shown(s3)[-1] == checkpoints(run).latest().manifest.iteration
    assert "hush" not in result.stderr + "".join(lines("journal.jsonl"))


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["slow down", pytest.param("hang", marks=pytest.mark.soak)])
def test_a_store_that_is_gone_costs_the_end_of_the_run_no_more_than_its_bound(
    processes, s3, tmp_path, expected, fault
):
    with processes.start(SCRIPT, tmp_path / "a", s3.address, 3, 0, 1, env=s3.env) as process:
        process.stdout.readline()
        s3.fault = lambda request: fault
        began = time.monotonic()
        result = process.result()
        assert time.monotonic() - began < 12  # most of it is the end of the interpreter
    assert result.stdout.splitlines()[-1] == expected
    assert "is behind: its newest checkpoint is none that is known" in result.stderr
    last = json.loads((tmp_path / "a" / "journal.jsonl").read_text().splitlines()[-1])
    assert last["event"] == "mirrored"
    assert "that of the directory of iteration 15" in last["behind"]
    s3.fault = lambda request: None
    processes.run(SCRIPT, tmp_path / "a", s3.address, env=s3.env)  # it is done, and copies the rest
    assert shown(s3)[-1] == 15


@pytest.mark.slow
def test_a_start_without_an_answer_goes_on_from_the_disk_and_never_anew(processes, s3, tmp_path):
    s3.fault = lambda request: "slow down"
    result = processes.run(SCRIPT, tmp_path / "a", s3.address, 3, 0, 2, env=s3.env, code=1)
    assert "StoreError" in result.stderr
    assert "has not answered for 2 s" in result.stderr
    s3.fault = lambda request: None
    processes.run(SCRIPT, tmp_path / "a", s3.address, 1, env=s3.env)
    s3.fault = lambda request: "slow down"
    result = processes.run(SCRIPT, tmp_path / "a", s3.address, 2, 0, 1, env=s3.env)
    assert result.stdout.splitlines()[0] == "began 5"
    assert "cannot be used now" in result.stderr


@pytest.mark.slow
def test_a_large_file_is_sent_in_parts_and_what_a_kill_leaves_of_it_is_dropped(
    processes, s3, tmp_path
):
    arguments = (s3.address, 1, 0, 60, 700_000)  # two files of 20 MB and more
    s3.fault = lambda request: "hang" if "partNumber=2" in request else None
    with processes.start(SCRIPT, tmp_path / "a", *arguments, env=s3.env) as process:
        while not any("partNumber=2" in request for request in s3.requests):
            assert process.poll() is None
            time.sleep(0.05)
        process.send_signal(signal.SIGKILL, group=True)
        process.wait()
    uploads = s3.client.list_multipart_uploads(Bucket=s3.bucket).get("Uploads", [])
    assert len(uploads) == 1
    s3.fault = lambda request: None
    s3.going.set()
    processes.run(SCRIPT, tmp_path / "a", *arguments, env=s3.env)
    assert shown(s3)[-1] == 5
    assert not s3.client.list_multipart_uploads(Bucket=s3.bucket).get("Uploads")


@pytest.mark.slow
def test_on_ranks_the_first_one_copies_and_fetches(processes, s3, tmp_path):
    processes.run_ranks(2, SCRIPT, tmp_path / "a", s3.address, 1, env=s3.env)
    results = processes.run_ranks(2, SCRIPT, tmp_path / "b", s3.address, 2, env=s3.env)
    assert [each.stdout.splitlines()[0] for each in results] == ["began 5"] * 2
    assert shown(s3)[-1] == 10


@pytest.mark.soak
def test_a_sharded_checkpoint_is_fetched_by_another_number_of_ranks(processes, s3, tmp_path):
    script = SCRIPT.with_name("sharded.py")
    results = processes.run_ranks(2, script, tmp_path / "a", s3.address, 1, env=s3.env)
    saved = results[0].stdout.split()[-1]
    names = [name for name in objects(s3) if name.startswith("iteration-0000000002")]
    assert len([name for name in names if name.endswith(".safetensors")]) >= 2  # a file of each
    for count in (4, 1):
        machine = tmp_path / f"of {count}"
        results = processes.run_ranks(count, script, machine, s3.address, 2, env=s3.env)
        assert [each.stdout.split()[:2] for each in results] == [["2", saved]] * count
        client, other = s3.client, f"run/iteration-{4:010}"
        for each in client.list_objects_v2(Bucket=s3.bucket, Prefix=other)["Contents"]:
            client.delete_object(Bucket=s3.bucket, Key=each["Key"])  # the next goes on from 2 too


@pytest.mark.slow
def test_hosts_that_share_no_directory_copy_to_s3_and_start_from_there(processes, s3, tmp_path):
    script = Path(__file__).parents[3] / "faults/ranks/train.py"
    disks = f"--local={tmp_path}/disks/host-{{rank}}"
    arguments = (tmp_path / "run", "--own-disks", disks, f"--store={s3.address}")
    for iterations in (6, 12):  # the second start finds empty disks
        processes.run_ranks(2, script, *arguments, f"--iterations={iterations}", env=s3.env)
        newest = [n for n in objects(s3) if f"iteration-{iterations:010}." in n]
        assert len([n for n in newest if n.endswith("manifest.json")]) == 2
        assert not [name for name in objects(s3) if name.endswith("draft")]
        shutil.rmtree(tmp_path / "disks")
    processes.run_ranks(2, script, tmp_path / "alone")
    for rank in (0, 1):
        texts = [(tmp_path / f"{n}.rank-{rank}.json").read_text() for n in ("run", "alone")]
        own, expected = map(json.loads, texts)
        assert own.pop("began") == [6]
        assert expected.pop("began") == [0]
        assert own.pop("samples").items() <= expected.pop("samples").items()
        assert own == expected


@pytest.mark.slow
def test_a_new_run_is_refused_where_the_store_has_another(processes, s3, tmp_path):
    processes.run(SCRIPT, tmp_path / "a", s3.address, 1, env=s3.env)
    new = (3, 0, 20, 64, "new")
    result = processes.run(SCRIPT, tmp_path / "b", s3.address, *new, env=s3.env, code=1)
    assert "holds checkpoints of an earlier run; pass resume=True" in result.stderr


@pytest.mark.slow
def test_the_copying_process_ends_with_its_parent_and_knows_no_torch(processes, s3, tmp_path):
    script = f"""
    import os, subprocess, sys
    from camshaft.handlers.cluster.mirror.process import StoreProcess
    settings = dict(url={str(tmp_path / "store")!r}, shown="", options={{}}, interval=1, wait=60,
                    directory={str(tmp_path / "run")!r}, logs=[], resume=False, fresh=True,
                    failing=False, hosts=None)
    copier = StoreProcess()
    copier.start(settings)
    assert "torch" not in open(f"/proc/{{copier._process.pid}}/maps").read()
    print(copier._process.pid, flush=True)
    os.kill(os.getpid(), 9)
    """
    if not sys.platform.startswith("linux"):
        pytest.skip("reads /proc")
    pid = int(processes.run(script, code=-9).stdout)
    for _ in range(100):
        if not Path(f"/proc/{pid}").exists() or "zombie" in Path(f"/proc/{pid}/status").read_text():
            return
        time.sleep(0.1)
    raise AssertionError("it is still there")


def test_wrong_arguments_are_refused_at_once():
    with pytest.raises(TypeError, match="names and plain values"):
        Mirror("file:///nowhere", options={"session": object()})
    with pytest.raises(ValueError, match="interval=0"):
        Mirror("file:///nowhere", interval=0)
    with pytest.raises(TypeError, match="a list of patterns"):
        Mirror("file:///nowhere", logs="*.csv")
    with pytest.raises(ValueError, match="gone when the run ends"):
        Mirror("memory://run")
    mirror = Mirror("ftp://me:secret@host/run", options={"password": "secret"})
    assert repr(mirror) == "Mirror('ftp://***@host/run')"


def test_a_mirror_needs_one_checkpoint_beside_it(tmp_path):
    engine = Engine(lambda state, batch: None, Mirror(f"file://{tmp_path}/store"))
    with pytest.raises(ValueError, match="needs one Checkpoint in its engine"):
        engine.run([1], max_epochs=1)


@pytest.mark.parametrize("inside", ["", "copies", "iteration-7/../copies/deep"])
@pytest.mark.parametrize("begin", ["file://", "file:", ""])
def test_the_directory_of_the_run_is_no_place_for_its_copies(tmp_path, begin, inside):
    mirror = Mirror(f"{begin}{tmp_path}/run/{inside}")
    engine = Engine(lambda state, batch: None, Checkpoint(tmp_path / "run"), mirror)
    with pytest.raises(ValueError, match="directory of the Checkpoint itself"):
        engine.run([1], max_epochs=1)
    assert not (tmp_path / "run" / "WRITER").exists()


def test_an_address_for_checkpoints_names_the_mirror_and_one_for_exports_does_not():
    with pytest.raises(ValueError, match=r"add Mirror\('s3://bucket/run'\) to the engine"):
        Checkpoint("s3://bucket/run")
    with pytest.raises(ValueError, match="copy the export there when the run is done"):
        Export("s3://bucket/run")


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_five_thousand_saves_leave_two_copies_and_nothing_that_grows(tmp_path):
    torch.manual_seed(0)
    model, store, sizes = torch.nn.Linear(4, 2), tmp_path / "store", []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    engine = supervised(model, optimizer, torch.nn.functional.cross_entropy)
    often = Events.ITERATION_COMPLETED(every=1)
    saves = Checkpoint(tmp_path / "run", when=often, keep=latest(2))
    engine.add(Mirror(str(store), interval=0.01, wait=300), saves)

    @engine.on(Events.ITERATION_COMPLETED(at=(500, 2500, 5000)))
    def measure(state):
        own = psutil.Process()
        (copier,) = (
            each
            for each in own.children(recursive=True)
            if any("mirror.copying" in word for word in each.cmdline())
        )
        found = (copier.memory_info().rss, copier.num_fds(), copier.num_threads())
        sizes.append((own.num_fds(), own.num_threads(), *found, len(list(os.walk(store)))))

    batch = (torch.randn(8, 4), torch.zeros(8).long())
    engine.run([batch] * 5000, max_epochs=1)
    print(sizes)
    assert sizes[-1][2] - sizes[0][2] < 10 * 2**20
    for number in (0, 1, 3, 4):  # files and threads; one or two come and go
        assert abs(sizes[-1][number] - sizes[0][number]) < 4
    assert max(each[5] for each in sizes) < 10  # folders in the store, while the run goes on
    copies = [saved.manifest.iteration for saved in checkpoints(store)]
    assert copies == [4999, 5000]
    assert len(list(store.glob("iteration-*"))) == 2
