"""Contrastive learning, teachers and targets: losses without labels, and networks that follow."""

import copy
from math import cos, pi

import torch
from torch import nn
from torch.nn.functional import cross_entropy, kl_div, mse_loss, normalize

from camshaft import Engine, Events, Update, supervised
from camshaft.handlers import LRSchedule, Validate
from camshaft.handlers.schedules import cosine, warmup


class Clip(nn.Module):
    def __init__(self):
        super().__init__()
        self.image, self.text = nn.Linear(4, 3), nn.Embedding(9, 3)
        self.scale = nn.Parameter(torch.tensor(1.0))

    def forward(self, image, text):
        image, text = (
            normalize(self.image(image), dim=1),
            normalize(self.text(text), dim=1),
        )
        return self.scale.exp() * image @ text.T


def both_ways(logits, target=None):
    labels = torch.arange(len(logits))
    return (cross_entropy(logits, labels) + cross_entropy(logits.T, labels)) / 2


def test_clip_whose_loss_needs_no_target(equals):
    def script(train):
        model = Clip()
        optimizer = torch.optim.AdamW(model.parameters(), 0.01)
        data = [(torch.randn(n, 4), torch.randint(9, (n,))) for n in (6, 6, 2)]
        if train.handlers is None:
            train(optimizer, lambda batch: both_ways(model(*batch)), data, 3)
            return (model,)
        engine = supervised(
            model, optimizer, both_ways, prepare_batch=lambda batch: (tuple(batch), None)
        )
        engine.add(Validate(data), *train.handlers).run(data, max_epochs=3)
        return (model,)

    equals(script)


def nt_xent(first, second):
    codes = normalize(torch.cat([first, second]), dim=1)
    logits = (codes @ codes.T / 0.5).fill_diagonal_(-1e9)
    half = len(first)
    return cross_entropy(logits, torch.cat([torch.arange(half) + half, torch.arange(half)]))


def test_simclr_in_a_step_of_its_own(equals):
    def script(train):
        model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
        optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
        data = [torch.randn(5, 4) for _ in range(4)]

        def loss_of(x):
            views = [x + 0.1 * torch.randn_like(x) for _ in range(2)]
            return nt_xent(*map(model, views))

        train(optimizer, loss_of, data, 2, model=model)
        return (model,)

    equals(script)


def test_byol_whose_target_follows_by_hand_and_is_an_object(equals):
    def script(train):
        online = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 3))
        target, head = copy.deepcopy(online).requires_grad_(False), nn.Linear(3, 3)
        optimizer = torch.optim.SGD([*online.parameters(), *head.parameters()], 0.1)
        data = [torch.randn(5, 4) for _ in range(4)]

        def loss_of(x):
            first, second = (x + 0.1 * torch.randn_like(x) for _ in range(2))
            with torch.no_grad():
                aim = normalize(target(second), dim=1)
            return -(normalize(head(online(first)), dim=1) * aim).sum(1).mean()

        def follow():
            with torch.no_grad():
                for slow, fast in zip(target.parameters(), online.parameters(), strict=True):
                    slow.lerp_(fast, 0.1)

        train(optimizer, loss_of, data, 3, follow, online=online, target=target, head=head)
        return online, target, head

    equals(script)


def test_distillation_from_a_teacher_that_never_changes(equals):
    def script(train):
        teacher = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
        teacher.eval().requires_grad_(False)
        student = nn.Linear(4, 3)
        optimizer = torch.optim.Adam(student.parameters(), 0.01)
        data = [(torch.randn(5, 4), torch.randint(3, (5,))) for _ in range(4)]

        def loss_of(batch):
            x, labels = batch
            made = student(x)
            with torch.no_grad():
                aim = teacher(x).softmax(1)
            soft = kl_div(made.log_softmax(1), aim, reduction="batchmean")
            return cross_entropy(made, labels) + soft

        train(optimizer, loss_of, data, 3, model=student)
        return (student,)

    equals(script)


def test_fine_tuning_whose_body_stays_in_evaluation_mode(equals):
    def script(train):
        body = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6)).eval().requires_grad_(False)
        model = nn.Sequential(body, nn.Dropout(0.2), nn.Linear(6, 3))
        optimizer = torch.optim.SGD(model[2].parameters(), 0.1)
        data = [(torch.randn(5, 4), torch.randint(3, (5,))) for _ in range(4)]
        train.supervised(model, optimizer, cross_entropy, data, 3)
        return (model,)

    equals(script)


def test_two_heads_with_schedules_by_steps_and_by_epochs(equals):
    def script(train):
        body, heads = nn.Linear(4, 6), nn.ModuleList([nn.Linear(6, 3), nn.Linear(6, 1)])
        of_body = torch.optim.SGD(body.parameters(), 0.1)
        of_heads = torch.optim.SGD(heads.parameters(), 0.1)
        data = [(torch.randn(5, 4), torch.randint(3, (5,)), torch.randn(5, 1)) for _ in range(6)]
        epochwise = torch.optim.lr_scheduler.StepLR(of_heads, 1, 0.5)

        def loss_of(batch):
            x, labels, values = batch
            made = body(x).relu()
            return cross_entropy(heads[0](made), labels) + mse_loss(heads[1](made), values)

        if train.handlers is None:
            for _ in range(3):
                for batch in data:
                    of_body.zero_grad()
                    of_heads.zero_grad()
                    loss_of(batch).backward()
                    of_body.step()
                    of_heads.step()
                epochwise.step()
            return body, heads
        groups = [{"params": [*body.parameters()]}, {"params": [*heads.parameters()]}]
        both = Update(torch.optim.SGD(groups, 0.1))
        by_epoch = torch.optim.lr_scheduler.LambdaLR(
            both.optimizer, [lambda epoch: 1.0, lambda epoch: 0.5**epoch]
        )

        def step(state, batch):
            both(state, loss_of(batch))

        objects = {"body": body, "heads": heads, "optimizer": both.optimizer}
        engine = Engine(step, both, objects=objects)
        engine.add(LRSchedule(by_epoch, when=Events.EPOCH_COMPLETED), *train.handlers)
        engine.run(data, max_epochs=3)
        return body, heads

    equals(script)


def test_a_transformer_with_warmup_clipping_and_labels_that_are_left_out(equals):
    def script(train):
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        model = nn.Sequential(nn.Embedding(11, 8), layer, nn.Linear(8, 11))
        optimizer = torch.optim.AdamW(model.parameters(), 0.01)
        data = []
        for _ in range(6):
            tokens = torch.randint(11, (3, 7))
            labels = torch.where(torch.rand(3, 6) < 0.2, -100, tokens[:, 1:])
            data.append((tokens[:, :-1], labels))

        def loss_of(made, labels):
            return cross_entropy(made.flatten(0, 1), labels.flatten())

        if train.handlers is None:
            for step, (tokens, labels) in enumerate(data * 2):
                progress = max(0, step - 3) / 9
                rate = step / 3 if step < 3 else (1 + cos(pi * progress)) / 2
                optimizer.param_groups[0]["lr"] = 0.01 * rate
                optimizer.zero_grad()
                loss_of(model(tokens), labels).backward()
                optimizer.step()
            return (model,)
        engine = supervised(model, optimizer, loss_of)
        engine.add(LRSchedule(warmup(3).then(cosine())), *train.handlers)
        engine.run(data, max_epochs=2)
        return (model,)

    equals(script)
