"""GANs, autoencoders and diffusion: several optimizers, and losses without a target."""

import torch
from torch import nn
from torch.nn.functional import mse_loss
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from camshaft import Engine, EventEnum, Events, Update, supervised
from camshaft.handlers import EMA, ClipGradNorm, Validate


class Turns(EventEnum):
    CRITIC_UPDATED = "critic_updated"


def train_gan(train, kind, critic_loss, epochs, clip=None, every=1):
    """Train a critic in each batch, and a generator in some; return both."""
    generator, critic = nn.Linear(2, 3), nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    real = [torch.randn(4, 3) for _ in range(8)]
    of_generator = kind(generator.parameters(), 0.01)
    of_critic = kind(critic.parameters(), 0.01)

    def generator_loss():
        return -critic(generator(torch.randn(4, 2))).mean()

    if train.handlers is None:
        for count, batch in enumerate(real * epochs, 1):
            of_critic.zero_grad()
            critic_loss(critic, generator, batch).backward()
            of_critic.step()
            if clip:
                clip(critic)
            if count % every == 0:
                of_generator.zero_grad()
                generator_loss().backward()
                of_generator.step()
        return generator, critic
    update_critic = Update(of_critic, event=Turns.CRITIC_UPDATED)
    update_generator = Update(of_generator)

    def step(state, batch):
        update_critic(state, critic_loss(critic, generator, batch))
        if clip:
            clip(critic)
        if state.iteration % every == 0:
            update_generator(state, generator_loss())

    objects = {"generator": generator, "critic": critic, "of_g": of_generator, "of_c": of_critic}
    engine = Engine(step, update_critic, update_generator, *train.handlers, objects=objects)
    engine.run(real, max_epochs=epochs)
    return generator, critic


def test_a_gan_whose_critic_leaves_gradients_in_the_generator(equals):
    """The critic's loss is not detached from the generator, whose gradients the loop clears."""

    def critic_loss(critic, generator, batch):
        return critic(generator(torch.randn(4, 2))).mean() - critic(batch).mean()

    equals(lambda train: train_gan(train, torch.optim.Adam, critic_loss, 2))


def test_a_wgan_with_clipped_weights_and_a_generator_that_steps_in_one_batch_of_five(equals):
    def critic_loss(critic, generator, batch):
        fake = generator(torch.randn(4, 2)).detach()
        return critic(fake).mean() - critic(batch).mean()

    def clip(critic):
        with torch.no_grad():
            for each in critic.parameters():
                each.clamp_(-0.1, 0.1)

    kind = torch.optim.RMSprop
    equals(lambda train: train_gan(train, kind, critic_loss, 3, clip, every=5))


class Autoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encode, self.decode = nn.Linear(5, 4), nn.Linear(2, 5)

    def forward(self, x):
        mean, log_variance = self.encode(x).chunk(2, dim=1)
        code = mean + torch.randn_like(mean) * (log_variance / 2).exp()
        return self.decode(code), mean, log_variance


def elbo(output, x):
    """The usual sum over a batch, divided by its size as papers write it."""
    made, mean, log_variance = output
    divergence = -0.5 * (1 + log_variance - mean.square() - log_variance.exp()).sum()
    return (mse_loss(made, x, reduction="sum") + divergence) / len(x)


def test_an_autoencoder_whose_target_is_its_input(equals):
    def script(train):
        model = Autoencoder()
        optimizer = torch.optim.Adam(model.parameters(), 0.01)
        data = [(x, x) for x in (torch.randn(n, 5) for n in (6, 6, 6, 2))]
        train.supervised(model, optimizer, elbo, data, 3)
        return (model,)

    equals(script)


def test_an_autoencoder_that_sums_in_a_step_of_its_own_and_counts_samples(equals):
    def script(train):
        model = Autoencoder()
        optimizer = torch.optim.SGD(model.parameters(), 0.01)
        data = [torch.randn(n, 5) for n in (6, 6, 6, 2)]

        def sum_loss(x):
            made, mean, log_variance = model(x)
            divergence = -0.5 * (1 + log_variance - mean.square() - log_variance.exp()).sum()
            return mse_loss(made, x, reduction="sum") + divergence

        if train.handlers is None:
            for _ in range(2):
                for first, second in zip(data[::2], data[1::2], strict=True):
                    optimizer.zero_grad()
                    for x in (first, second):
                        sum_loss(x).backward()
                    for each in model.parameters():
                        each.grad.mul_(1 / (len(first) + len(second)))
                    optimizer.step()
            return (model,)
        update = Update(optimizer, accumulate=2)

        def step(state, x):
            loss = sum_loss(x)
            if state.training:
                update(state, loss, weight=len(x))
            state.metrics["loss"] = loss.detach() / len(x)

        engine = Engine(step, update, objects={"model": model, "optimizer": optimizer})
        engine.add(*train.handlers).run(data, max_epochs=2)
        return (model,)

    equals(script)


def test_diffusion_with_noise_for_a_target_and_an_average_of_the_weights(equals):
    def script(train):
        model = nn.Sequential(nn.Linear(4, 8), nn.SiLU(), nn.Linear(8, 3))
        optimizer = torch.optim.AdamW(model.parameters(), 0.01)
        data = [torch.randn(4, 3) for _ in range(5)]

        def loss_of(x):
            t, noise = torch.rand(len(x), 1), torch.randn_like(x)
            return mse_loss(model(torch.cat([x * (1 - t) + noise * t, t], 1)), noise)

        own = [ClipGradNorm(0.5), EMA(0.9, warmup=False)]
        average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))
        after = None if train.handlers else lambda: average.update_parameters(model)
        engine = train(optimizer, loss_of, data, 2, after, clip=0.5, own=own, model=model)
        return model, engine.objects["ema"] if engine else average.module

    equals(script)


def test_samples_are_drawn_after_each_epoch_in_evaluation_mode_which_is_taken_back(equals):
    def script(train):
        model = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.BatchNorm1d(4), nn.Linear(4, 3))
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        data = [(x, x) for x in (torch.randn(4, 3) for _ in range(4))]
        samples = []

        def sample():
            model.eval()
            with torch.no_grad():
                samples.append(model(torch.ones(1, 3)).clone())
            model.train()

        if train.handlers is None:
            for _ in range(3):
                for x, target in data:
                    optimizer.zero_grad()
                    mse_loss(model(x), target).backward()
                    optimizer.step()
                sample()
            return model, *samples
        engine = supervised(model, optimizer, mse_loss).add(*train.handlers)
        engine.on(Events.EPOCH_COMPLETED)(lambda state: sample())
        engine.add(Validate(data[:2]))
        engine.run(data, max_epochs=3)
        return model, *samples

    equals(script)
