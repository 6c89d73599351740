"""What newcomers type into the search of the site, and the page that answers it."""

import re
from urllib.parse import quote_plus

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
pytest.importorskip("zensical", reason='needs pip install "camshaft[docs]"')

ASKED = {
    "examples": "examples/index",
    "sample code": "examples/index",
    "multi gpu": "guides/ranks",
    "multiple gpus": "guides/ranks tutorials/ranks",
    "ddp": "guides/ranks",
    "fsdp": "guides/sharded",
    "tensor parallel": "guides/sharded",
    "model does not fit": "guides/sharded",
    "distributed checkpoint": "guides/sharded-checkpoints guides/dcp",
    "distributed training": "guides/ranks tutorials/ranks",
    "distributed sampler": "guides/ranks-data",
    "torchrun": "guides/launchers guides/ranks tutorials/ranks",
    "slurm": "guides/launchers guides/resume",
    "multi node": "guides/launchers",
    "nccl timeout": "guides/ranks-failures",
    "rank hangs": "guides/ranks-failures",
    "rank 0": "guides/ranks-functions reference/ranks",
    "fewer gpus": "guides/ranks-change",
    "early stopping": "reference/evaluation",
    "EarlyStopping": "reference/evaluation",
    "early_stopping": "reference/evaluation",
    "how to stop early": "guides/evaluation",
    "validation loop": "guides/evaluation",
    "best model": "guides/evaluation",
    "predict": "guides/evaluation reference/evaluation",
    "resume checkpoint": "guides/resume",
    "resume training": "guides/resume tutorials/resume",
    "how do i resume training": "guides/resume tutorials/resume",
    "checkpointing": "guides/resume",
    "save and load a model": "guides/resume",
    "load checkpoint": "guides/resume",
    "preemption": "guides/resume tutorials/resume",
    "s3": "guides/stores",
    "log every n steps": "guides/events guides/logging",
    "tensorboard": "guides/logging reference/logs",
    "wandb": "guides/logging reference/logs",
    "weights and biases": "guides/logging",
    "progress bar": "guides/logging reference/logs",
    "csv logger": "guides/logging reference/logs",
    "confusion matrix": "guides/metrics guides/logging guides/reports",
    "accuracy": "guides/metrics",
    "torchmetrics": "guides/metrics",
    "learning rate scheduler": "guides/schedules",
    "lr scheduler": "guides/schedules",
    "cosine warmup": "guides/schedules reference/schedules",
    "lr finder": "guides/search tutorials/sweeps",
    "hyperparameter search": "guides/search tutorials/sweeps",
    "optuna": "guides/search tutorials/sweeps",
    "custom training loop": "guides/steps tutorials/own-step",
    "gradient accumulation": "guides/accumulation",
    "gradient clipping": "guides/steps",
    "multiple optimizers": "guides/optimizers tutorials/gan",
    "callback": "guides/handler",
    "custom callback": "guides/handler",
    "hooks": "guides/events guides/handler",
    "Trainer": "migrate/lightning start index",
    "fit": "start migrate/keras migrate/lightning index",
    "lightning module": "migrate/lightning",
    "hugging face trainer": "migrate/transformers",
    "migrate from ignite": "migrate/ignite",
    "mixed precision": "guides/gpu",
    "bf16": "guides/gpu",
    "torch.compile": "guides/compile",
    "use a gpu": "guides/gpu",
    "hugging face models": "guides/hugging-face guides/models",
    "dataloader": "guides/data reference/data",
    "webdataset": "guides/streams",
    "sequence packing": "guides/text",
    "torchtitan": "guides/dcp",
    "padding": "guides/text",
    "ema": "guides/averages reference/averages",
    "freeze layers": "guides/fine-tuning tutorials/fine-tuning",
    "profiler": "guides/measurements guides/order reference/measurements",
    "out of memory": "guides/guards",
    "nan loss": "guides/guards",
    "jupyter": "guides/notebooks",
    "dashboard": "guides/reports",
    "config file yaml": "guides/configs",
    "rlhf": "guides/post-training guides/grpo",
    "sft": "guides/sft",
    "dpo": "guides/dpo",
    "grpo": "guides/grpo",
    "export model": "guides/resume reference/saving",
    "save model": "guides/resume",
    "save best model": "guides/evaluation guides/resume",
    "reproducible": "guides/exact-resume guides/models guides/compare",
    "seed": "guides/models guides/exact-resume",
    "class imbalance": "guides/data",
    "train test split": "guides/data guides/evaluation",
    "gpu not used": "guides/gpu",
    "command line": "guides/command-line",
    "loss is nan": "guides/guards",
    "reproducibility": "guides/compare guides/prove guides/exact-resume",
    "install": "guides/install",
    "getting started": "start",
    "troubleshooting": "guides/troubleshooting",
    "earlystoping": "reference/evaluation",
}
"""Pages by what is typed; one of them has to be among the first three results."""


def first_pages(page, asked):
    """The pages of the first three results."""
    page.locator("[role=combobox]").fill(asked)
    found = f"h={quote_plus(asked)}"
    page.locator(f"[role=option]:is([href*='{found}#'], [href$='{found}'])").first.wait_for()
    results = page.locator("[role=option]").evaluate_all("all => all.map(each => each.href)")
    return [re.search(r"/site/(.*)\.html", address).group(1) for address in results[:3]]


def test_what_newcomers_type_finds_the_page_that_answers_it(site, open_page):
    page = open_page(site / "index.html")
    page.wait_for_load_state("networkidle")
    page.keyboard.press("Control+k")
    assert len(ASKED) >= 60
    wrong = {}
    for asked, wanted in ASKED.items():
        if not {*(found := first_pages(page, asked))} & {*wanted.split()}:
            wrong[asked] = found
    assert wrong == {}


LIBRARIES = (
    *("litdata", "mosaicml-streaming", "lhotse", "nvidia-dali", "spdl", "torch_geometric"),
    *("albumentations", "kornia", "audiomentations", "bitsandbytes", "galore", "schedulefree"),
    *("prodigyopt", "lion-pytorch", "ema-pytorch", "opacus", "segmentation_models_pytorch"),
    *("sentence-transformers", "stable_baselines3", "pytorch-metric-learning", "e3nn", "skrl"),
)


def test_a_library_that_was_tried_is_found_by_its_name(site, open_page):
    page = open_page(site / "index.html")
    page.wait_for_load_state("networkidle")
    page.keyboard.press("Control+k")
    found = {name: first_pages(page, name) for name in LIBRARIES}
    assert {name: pages for name, pages in found.items() if "project/works-with" not in pages} == {}


def test_words_that_only_the_search_needs_are_not_shown(site, open_page):
    page = open_page(site / "index.html")
    page.wait_for_load_state("networkidle")
    page.keyboard.press("Control+k")
    for asked in ("validation loop", "data loader"):
        first_pages(page, asked)
        shown = page.locator("[role=option]").first.inner_text()
        assert "test set, inference" not in shown, shown
        assert "Data Loader" not in shown, shown
        assert "how do i can" not in shown, shown
