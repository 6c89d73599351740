"""The Ray example on a cluster of two nodes, of which a "worker" or a whole "node" is killed."""

import json
import os
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import ray
from ray.cluster_utils import Cluster

EXAMPLES = Path(__file__).parents[3] / "examples"
sys.path.insert(0, str(EXAMPLES))
os.environ["PYTHONPATH"] = os.pathsep.join([str(EXAMPLES), os.environ.get("PYTHONPATH", "")])
import ray_digits  # noqa: E402

NODE = {"num_cpus": 1, "object_store_memory": 80 * 2**20}
directory, max_epochs, kills = Path(sys.argv[1]), sys.argv[2], sys.argv[3:]
told = {}


def kill_a_worker(epoch):
    wait_for(epoch)
    victim = ray_workers()[0]
    told["worker"] = victim.pid
    victim.send_signal(signal.SIGKILL)


def kill_a_node(epoch):
    kill_a_node_for_good(epoch)
    cluster.add_node(**NODE)  # another machine takes its place


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
arguments += ["--workers", "1", "2"] if "node for good" in kills else []
ways = {"worker": kill_a_worker, "node": kill_a_node, "node for good": kill_a_node_for_good}
with ThreadPoolExecutor(1) as pool:  # nodes are started by the main thread alone
    training = pool.submit(ray_digits.main, arguments)
    for number, what in enumerate(kills):
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
children = psutil.Process().children(recursive=True)
ray.shutdown()
cluster.shutdown()
told["left"] = [str(each) for each in psutil.wait_procs(children, 10)[1]]
(directory / "told.json").write_text(json.dumps(told))
