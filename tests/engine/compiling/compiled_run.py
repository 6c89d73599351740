"""A compiled run that keeps what torch compiles in its directory; with `killed` it ends itself."""

import json
import os
import signal
import sys
from hashlib import sha256
from pathlib import Path

DIRECTORY = Path(sys.argv[1])
os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(DIRECTORY / "compiled")

import torch  # noqa: E402
from torch._dynamo.utils import counters  # noqa: E402

from camshaft import Events, supervised  # noqa: E402
from camshaft.handlers import Checkpoint, ClipGradNorm  # noqa: E402

torch.set_num_threads(1)
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 1))
data = list(zip(torch.randn(4, 4, 8), torch.randn(4, 4, 1), strict=True))
optimizer = torch.optim.AdamW(model.parameters())
engine = supervised(model, optimizer, torch.nn.functional.mse_loss, compile=True)
engine.add(ClipGradNorm(1.0), Checkpoint(DIRECTORY, resume=True))
if "killed" in sys.argv:
    engine.on(Events.EPOCH_STARTED(at=3))(lambda state: os.kill(os.getpid(), signal.SIGKILL))
built = []
sys.addaudithook(
    lambda event, given: built.append(1) if event == "subprocess.Popen" and "-o" in given[1] else 0
)
engine.run(data, max_epochs=4)
print(
    json.dumps(
        {
            "weights": sha256(
                b"".join(each.detach().numpy().tobytes() for each in model.parameters())
            ).hexdigest(),
            "hits": counters["inductor"]["fxgraph_cache_hit"],
            "misses": counters["inductor"]["fxgraph_cache_miss"],
            "built": len(built),
        }
    )
)
