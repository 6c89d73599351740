"""The Ray example on a cluster of two nodes, of which a "worker" or a whole "node" is killed.

"trials" and "copies" are small runs that follow on the same cluster, as a start takes seconds.
"""

import json
import os
import signal
import subprocess
import sys
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import ray
from ray.cluster_utils import Cluster

EXAMPLES = Path(__file__).parents[4] / "examples"
sys.path.insert(0, str(EXAMPLES))
HERE = Path(__file__).parent
paths = [str(EXAMPLES), str(HERE), os.environ.get("PYTHONPATH", "")]
os.environ["PYTHONPATH"] = os.pathsep.join(paths)
import ray_digits  # noqa: E402

sys.path.insert(0, str(HERE))
import small_runs  # noqa: E402

NODE = {"num_cpus": 1, "object_store_memory": 80 * 2**20}
directory, max_epochs, kills = Path(sys.argv[1]), sys.argv[2], sys.argv[3:]
told = {"outside": small_runs.outside()}


def kill_a_worker(epoch):
    wait_for(epoch)
    victim = ray_workers()[0]
    told["worker"] = victim.pid
    victim.send_signal(signal.SIGKILL)


def kill_a_node(epoch):
    kill_a_node_for_good(epoch)
    cluster.add_node(**NODE)  # another machine takes its place


def take_a_node_away(epoch):
    """Tell Ray, as a cloud does; when the run has saved at once, kill the node."""
    wait_for(epoch)
    node = {"node-id": second.node_id, "reason": "DRAIN_NODE_REASON_PREEMPTION"}
    node |= {"reason-message": "test", "deadline-remaining-seconds": 120}
    words = [f"--{name}={value}" for name, value in node.items()]
    command = [str(Path(sys.executable).with_name("ray")), "drain-node"]
    subprocess.run([*command, f"--address={cluster.address}", *words], check=True)
    while not (
        saved := [each.name for each in run.glob("iteration-*") if int(each.name[10:20]) % 36]
    ):
        assert not training.done(), training.result()
        time.sleep(0.01)
    told["just in time"] = saved
    before = ray_workers()
    cluster.remove_node(second, allow_graceful=False)
    told["with the node"] = len(psutil.wait_procs(before, 20)[0])
    cluster.add_node(**NODE)


def kill_a_node_for_good(epoch):
    """Kill all processes of a node, which has one of the two workers."""
    wait_for(epoch)
    before = ray_workers()
    cluster.remove_node(second, allow_graceful=False)
    told["workers"] = [len(before)]
    told["with the node"] = len(psutil.wait_procs(before, 20)[0])


def wait_for(epoch):
    while not any(int(each.name[10:20]) >= 36 * epoch for each in run.glob("iteration-*")):
        assert not training.done(), training.result()
        time.sleep(0.01)
    time.sleep(0.1)  # into the next epoch


def ray_workers():
    found = psutil.Process().children(recursive=True)
    return [each for each in found if each.name().startswith("ray::RayTrain")]


run = directory / "digits" / "run"
cluster = Cluster(initialize_head=True, head_node_args={"include_dashboard": False, **NODE})
second = cluster.add_node(**NODE)
arguments = ["--directory", str(directory), "--address", cluster.address]
arguments += ["--max-epochs", max_epochs]
ways = {"worker": kill_a_worker, "node": kill_a_node, "node for good": kill_a_node_for_good}
ways["preemption"] = take_a_node_away  # a failure to Ray, if the other rank misses it first
deaths = [kill for kill in kills if kill in ways]
arguments += ["--max-failures", str(len(deaths))]  # any other failure ends the run
arguments += ["--workers", "1", "2"] if "node for good" in kills else []
with ThreadPoolExecutor(1) as pool:  # nodes are started by the main thread alone
    training = pool.submit(ray_digits.main, arguments)
    for number, what in enumerate(kill for kill in kills if kill in ways):
        ways[what](2 * number + 1)
    if "node for good" in kills:
        wait_for(int(max_epochs) - 1)
        told["workers"] += [len(ray_workers())]
    result = training.result()
told |= {
    "rows": result.metrics_dataframe[["epoch", "iteration", "val/accuracy"]].to_dict("records"),
    "metrics": result.metrics,
    "checkpoint": result.checkpoint.path,
    "best": [each.path for each, _ in result.best_checkpoints],
}
warnings.simplefilter("ignore")  # Ray's own
if "trials" in kills:
    told["trials"] = small_runs.trials(directory / "trials")
if "copies" in kills:
    told["copies"] = small_runs.train_with_kills(directory / "copies")
small_runs.whole(directory / "whole")
children = psutil.Process().children(recursive=True)
ray.shutdown()
cluster.shutdown()
told["left"] = [str(each) for each in psutil.wait_procs(children, 10)[1]]
(directory / "told.json").write_text(json.dumps(told))
