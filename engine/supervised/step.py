"""What a supervised engine does with a batch, in training and in evaluation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, is_dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import Module
from torch.nn.parallel import DistributedDataParallel

from .. import ranks
from ..checks import warn, warn_if_it_drifts
from ..compiling import CompiledForward
from ..events import Events, Stage
from ..means import Means, Weight, first_length, mean_over_ranks, samples_of, weight_of
from ..modules import keep_shared, modules_of, parallel_of, unwrap, without_sending_buffers
from ..outputs import IGNORED, Output, part_of
from ..state import LatestMetrics, State
from ..update import Update
from .batch import (
    NEEDS_TARGET,
    arguments,
    labels_in,
    lacks_loss,
    no_loss,
    note_loss,
    note_names,
    own_loss,
    refuse_lack,
)
from .checked_means import Shapes, check_parts, check_split_loss
from .loss_parts import split_loss
from .nested import map_tensors
from .split import in_parts

if TYPE_CHECKING:
    from ..engine import Engine

AS_IS = nullcontext()
KEPT = (Mapping, list, tuple, str, int, float, type(None))
"""What a model may return beside tensors and dataclasses, and has no graph of its own."""


@dataclass(frozen=True, eq=False)
class Supervised:
    """The two process functions of `supervised`, and the handlers that belong to them."""

    model: Module
    loss_fn: Callable[..., Any]
    """`own_loss` if the model computes the loss."""
    update: Update | None
    """None for an engine that only evaluates."""
    prepare_batch: Callable[[Any], tuple[Any, Any]]
    weight: Weight = None
    """The number of targets of a batch; None if its loss is a mean over its samples."""
    is_sum: bool = False
    """True if the loss is the sum over these targets, False if it is their mean."""
    move: Callable[[Any], Any] | None = None
    """Brings batches to the device; None for the CPU, where they are already."""
    autocast: torch.autocast | None = None
    split: int | None = None
    """The most samples that go through the model at once; None for whole batches."""
    compiled: CompiledForward | None = None
    """Computes the model and the loss; None if they are not compiled."""
    takes_batch: bool = False
    """True if the loss function is given the batch after output and target."""

    @cached_property
    def is_parallel(self) -> bool:
        """True if the model averages gradients over ranks, and sends buffers as it is called."""
        return parallel_of(self.model) is not None

    def train(self, state: State[Any, Output], batch: Any) -> Output:
        """Forward pass, loss and update."""
        update, metrics, pair = self.update, state.metrics, self.prepare_batch(batch)
        assert update is not None  # else the run has been refused
        closure = partial(self.loss_again, batch) if update.needs_closure else None
        if self.split is None and update.sync is None and self.compiled is None:
            # Nothing is to happen before the forward pass: the context would only take its time.
            loss, output = self.forward(self.model, metrics, pair, batch)
            update(state, loss, weight=output.weight, closure=closure)
            return output
        with update.micro_batch(state) as micro:
            if self.split is not None:  # a forward and a backward pass for each part
                forward = partial(self.forward, self.model, None)
                output = in_parts(state, pair, forward, self.split, micro)
                micro.count(output.loss, output.weight)
            else:
                loss, output = self.forward(self.model, metrics, pair, batch)
                update(state, loss, weight=output.weight, closure=closure)
        return output

    def evaluate(self, state: State[Any, Output], batch: Any) -> Output:
        """Forward pass, and the loss, unless its function needs a target and there is none."""
        if self.is_parallel or torch.is_grad_enabled():  # else the whole pass has it off already
            # Not inference mode: a table that the model keeps would break the next training.
            with torch.no_grad(), without_sending_buffers(self.model):
                return self.evaluated(state, batch)
        return self.evaluated(state, batch)

    def evaluated(self, state: State[Any, Output], batch: Any) -> Output:
        """The output of an evaluation, which records no gradients and waits for no rank."""
        model = self.model
        if isinstance(model, DistributedDataParallel):  # its forward would wait for other ranks
            model = model.module
        pair = self.prepare_batch(batch)
        if self.split is not None:
            return in_parts(state, pair, partial(self.forward, model, None), self.split)
        return self.forward(model, state.metrics, pair, batch)[1]

    def forward(
        self,
        model: Module,
        metrics: LatestMetrics | None,
        pair: tuple[Any, Any],
        batch: Any = None,
    ) -> tuple[Tensor | None, Output]:
        """The loss with its graph, and the output; the metric is the loss without its graph."""
        input, target = pair
        loss_fn: Callable[[Any, Any], Any] = self.loss_fn
        if self.takes_batch:
            if self.move is not None:
                input, target, batch = self.move((input, target, batch))
            loss_fn = partial(_with_batch, loss_fn, batch)
        elif self.move is not None:
            input, target = self.move((input, target))
        asked, samples = None, None
        if target is None:
            samples = first_length(input) or None
            if loss_fn is own_loss:
                target = labels_in(input)  # now, so that they are moved once
            elif not torch.is_grad_enabled():  # an evaluation may be for the predictions alone
                loss_fn, asked = no_loss, loss_fn
        made, loss = self.compute(model, loss_fn, input, target)
        if asked is not None:
            loss = self.loss_without_target(asked, made)
        parts = None
        if loss is not None and type(loss) is not Tensor:
            loss, parts = split_loss(loss)
        if type(made) is Tensor:
            whole = prediction = made.detach()
        else:
            whole, prediction = _without_graphs(made)
        if loss is None:
            if loss_fn is own_loss and torch.is_grad_enabled():  # in training
                raise lacks_loss(made)
            return None, Output(None, prediction, target, samples=samples, model_output=whole)
        if not (isinstance(loss, Tensor) and loss.ndim == 0):
            raise _not_a_scalar(loss)
        output = Output(loss.detach(), prediction, target, None, samples, parts, whole)
        if self.weight is not None:
            loss, output = self.over_targets(loss, output)
        if metrics is not None:
            metrics.replace("loss", output.loss)
            if output.parts is not None:
                metrics.claim(output.parts)
        return loss, output

    def compute(self, model: Module, loss_fn: Any, input: Any, target: Any) -> tuple[Any, Any]:
        """The output of the model, and the loss; an error tells what both were given."""
        given, named = ((input,), {}) if type(input) is Tensor else arguments(input)
        made = None
        try:
            if self.compiled is not None:
                with self.autocast or AS_IS:
                    return self.compiled(model, loss_fn, given, named, target)
            if self.autocast is None:  # an empty context would cost a step two calls
                made = model(*given, **named)
                return made, loss_fn(made, target)
            with self.autocast:
                made = model(*given, **named)
                return made, loss_fn(made, target)
        except Exception as error:
            if target is None and loss_fn not in (own_loss, no_loss):
                refuse_lack(error, input)
            if isinstance(error, TypeError):
                note_names(error, model, named)
            elif isinstance(error, RuntimeError) and made is not None:
                note_loss(error, made, target)
            raise

    def loss_without_target(self, loss_fn: Callable[[Any, Any], Any], made: Any) -> Any:
        """The loss of an output in an evaluation; None if its function needs a target."""
        try:
            with self.autocast or AS_IS:
                return loss_fn(made, None)
        except NEEDS_TARGET:
            return None

    def over_targets(self, loss: Tensor, output: Output) -> tuple[Tensor, Output]:
        """The loss as a sum over the batch's targets, and the output with their mean and number.

        Without any target the loss is 0, where a mean would be NaN.
        """
        number = weight_of(output, self.weight, "supervised()")
        wide = torch.promote_types(loss.dtype, torch.float32)
        if isinstance(number, Tensor):
            number = number.detach().to(loss.device, wide)
        else:  # made on the device, which does not wait
            number = torch.full((), number, device=loss.device, dtype=wide)
        if number.ndim:
            raise ValueError(
                f"weight= gave a tensor of shape {tuple(number.shape)}; it needs one number, how "
                "many targets the loss of the batch is over"
            )
        is_empty = number <= 0
        # torch.where with a number copies it to the device, and waits for that.
        mean = loss / number.masked_fill(is_empty, 1) if self.is_sum else loss
        mean = mean.masked_fill(is_empty, 0)
        if output.parts is not None:
            divisor = number.masked_fill(is_empty, 1) if self.is_sum else 1
            parts = {n: (p / divisor).masked_fill(is_empty, 0) for n, p in output.parts.items()}
            output = output._replace(parts=parts)
        return mean * number, output._replace(loss=mean.detach(), weight=number)

    def loss_again(self, batch: Any) -> Tensor:
        """The loss of a batch with the current weights, for an optimizer with a closure."""
        loss, _ = self.forward(self.model, None, self.prepare_batch(batch), batch)
        if loss is None:
            raise ValueError("the loss function gave a loss for this batch and then none")
        return loss

    def attach(self, engine: Engine[Any, Output]) -> None:
        """Look at a teacher's mode when a run starts; average the loss in evaluation."""
        if self.update is None:
            engine.on(Events.LOADING, stage=Stage.MEASURE)(self.refuse_to_train)
        if self.compiled is not None:
            engine.on(Events.STARTED, stage=Stage.MEASURE)(self.compiled.begin)
            engine.on(Events.EPOCH_COMPLETED, stage=Stage.REPORT)(self.compiled.report)
        engine.on(Events.STARTED, stage=Stage.MEASURE)(self.check_mode)
        engine.evaluation.on(Events.STARTED, stage=Stage.MEASURE)(self.share_buffers)
        engine.evaluation.on(Events.ITERATION_COMPLETED, stage=Stage.MEASURE)(self.add_loss)
        engine.evaluation.on(Events.EPOCH_COMPLETED(last=True), stage=Stage.MEASURE)(self.mean_loss)
        if self.use_cache() is not None:
            for each in (engine, engine.evaluation):
                first = Events.ITERATION_STARTED(at=1)
                each.on(first, stage=Stage.MEASURE)(self.refuse_cache)
        if self.loss_fn is own_loss:
            engine.on(Events.ITERATION_COMPLETED(at=1), stage=Stage.REPORT)(self.check_padding)
        if self.loss_fn is own_loss and self.weight is None:
            for each in (engine, engine.evaluation):
                each.on(Events.ITERATION_COMPLETED(at=1), stage=Stage.REPORT)(self.check_weight)
        elif self.weight is None and (self.split or (self.update and self.update.accumulate > 1)):
            engine.on(Events.ITERATION_COMPLETED(at=1), stage=Stage.REPORT)(self.check_parts)

    def refuse_to_train(self, state: State[Any, Any]) -> None:
        """Say what is missing."""
        raise ValueError(
            "supervised() got no optimizer, so this engine only evaluates; to train, give it "
            "one: supervised(model, optimizer, loss_fn)"
        )

    def check_mode(self, state: State[Any, Any]) -> None:
        """Warn if a teacher of the loss was left in training mode."""
        objects = state.engine.objects.values()
        for each in modules_of(self.loss_fn):
            if all(each is not other for other in objects):  # those are checked already
                warn_if_it_drifts("the module in the loss function", each)

    def use_cache(self) -> Any:
        """True if a model of Hugging Face's keeps what it has computed; None for others."""
        return getattr(getattr(unwrap(self.model), "config", None), "use_cache", None)

    def refuse_cache(self, state: State[Any, Any]) -> None:
        """Refuse rows of several texts if a cache or a mask makes the model take them for one."""
        batch: Any = state.batch
        if not isinstance(batch, Mapping) or "document_ids" not in batch:
            return
        mask = batch.get("attention_mask")
        if getattr(mask, "ndim", None) == 2:
            raise ValueError(
                "the batch has several texts in a row, by its document_ids, and with an "
                "attention_mask, also one of ones, models of Hugging Face take a row for one text: "
                "leave it out; position_ids keep the texts apart"
            )
        if mask is None and self.use_cache():
            raise ValueError(
                "the batch has several texts in a row, by its document_ids, and models of Hugging "
                "Face keep these apart only without a cache: model.config.use_cache = False"
            )

    def check_weight(self, state: State[Any, Any]) -> None:
        """Warn if the loss of the model is over tokens, of which some do not count."""
        labels = labels_in(state.batch)
        is_on_host = isinstance(labels, Tensor) and labels.device.type == "cpu"
        if is_on_host and labels.ndim > 1 and (labels == IGNORED).any():
            warn(
                "some labels are -100, so the model's loss is a mean over the others, and each "
                "batch counts by its samples; say what to count: supervised(..., "
                "weight=count_next_tokens) for a model that predicts the next token, "
                "weight=count_tokens for others; both are in camshaft"
            )

    def check_padding(self, state: State[Any, Any]) -> None:
        """Warn if a model of Hugging Face's is trained to predict padding."""
        batch: Any = state.batch if isinstance(state.batch, Mapping) else {}
        labels, mask = labels_in(batch), batch.get("attention_mask")
        if not (isinstance(labels, Tensor) and isinstance(mask, Tensor)):
            return
        if labels.shape != mask.shape or labels.is_floating_point() or labels.device.type != "cpu":
            return
        config = getattr(unwrap(self.model), "config", None)
        if getattr(config, "is_encoder_decoder", False):
            return  # its mask is that of the encoder's words, and its labels are the decoder's
        if (labels[mask == 0] != IGNORED).any():
            warn(
                "the batch has padding, by its attention_mask, and labels there that count in the "
                "loss: the model learns to predict padding. Write labels[attention_mask == 0] = "
                "-100, as DataCollatorForLanguageModeling does"
            )

    def check_parts(self, state: State[Any, Output]) -> None:
        """Warn if the parts of a step count otherwise than in one large batch."""
        by_samples = "each part of split= counts by its samples"
        counts = by_samples if self.split else "each batch of accumulate= counts the same"
        if (output := state.output) is None or output.loss is None:
            return
        has_told = check_parts(self.loss_fn, output.target, counts)
        # On ranks a loss may gather, and would wait for one whose batch is too small for this.
        is_alone = ranks.world_size() == 1
        if self.split and not has_told and not self.takes_batch and is_alone:
            check_split_loss(self.loss_fn, output)

    def share_buffers(self, state: State[Any, Any]) -> None:
        """Give all ranks the buffers of the first one, as a forward pass in training does."""
        parallel = parallel_of(self.model)
        if parallel is not None and parallel.broadcast_buffers:
            with torch.no_grad():
                ranks.share(parallel.module.buffers())
            if not state.engine.lent:
                keep_shared()

    def add_loss(self, state: State[Any, Output]) -> None:
        """Add a batch's loss, weighted by its number of targets or samples."""
        if (output := state.output) is not None and output.loss is not None:
            count = samples_of(output) if output.weight is None else output.weight
            weight = 1 if count is None else count
            means = state.recall(self, Means)
            means.add("loss", output.loss, weight)
            for name, value in (output.parts or {}).items():
                means.add(name, value, weight)
            is_flat = isinstance(output.target, Tensor) and output.target.ndim < 2
            if self.weight is None and not is_flat:
                state.recall(self, Shapes, saved=False).add(output)

    def mean_loss(self, state: State[Any, Any]) -> None:
        """Replace the last batch's loss by the mean over all batches, on all ranks."""
        for name, mean in mean_over_ranks(state.recall(self, Means).sums).items():
            state.metrics.replace(name, mean)
        state.recall(self, Shapes, saved=False).check(state.control.data)


def _with_batch(loss_fn: Callable[..., Any], batch: Any, made: Any, target: Any) -> Any:
    return loss_fn(made, target, batch)


def _without_graphs(made: Any) -> tuple[Any, Any]:
    """What a model made, and the prediction in it; an object that may hold a graph becomes None."""
    part = part_of(made, "prediction", made)
    prediction = map_tensors(part, Tensor.detach)
    if part is made:
        return prediction, prediction

    def bare(each: Any) -> Any:
        if each is part:
            return prediction
        return each.detach() if isinstance(each, Tensor) else None

    def is_leaf(each: Any) -> bool:
        return each is part or not (isinstance(each, KEPT) or is_dataclass(each))

    return map_tensors(made, bare, is_leaf=is_leaf), prediction


def _not_a_scalar(loss: Any) -> ValueError:
    given = f"a tensor of shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else repr(loss)
    return ValueError(f"the loss function returned {given}; it needs a scalar tensor, or None")
