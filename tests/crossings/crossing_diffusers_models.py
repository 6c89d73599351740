"""diffusers: a UNet that learns to remove noise."""

import torch
from crossing import Trial, adam, exact
from torch import nn

from camshaft import Engine, Events, Update


@exact("diffusers", "Models", 'objects={"model": unet, "ema": EMAModel(unet.parameters()), ...}')
def test_unet(folder):
    """UNet2DModel with DDPMScheduler and EMAModel, which has a state of its own."""
    from diffusers import DDPMScheduler, UNet2DModel
    from diffusers.training_utils import EMAModel

    torch.manual_seed(0)
    unet = UNet2DModel(
        sample_size=8, in_channels=1, out_channels=1, layers_per_block=1,
        block_out_channels=(8, 8), norm_num_groups=4, attention_head_dim=4, dropout=0.1,
        down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"),
    )  # fmt: skip
    noise_schedule = DDPMScheduler(num_train_timesteps=50)
    ema = EMAModel(unet.parameters(), decay=0.99, use_ema_warmup=True)
    update = Update(adam(unet))

    def step(state, batch):
        noise = torch.randn_like(batch)
        times = torch.randint(0, 50, (len(batch),))
        found = unet(noise_schedule.add_noise(batch, noise, times), times).sample
        loss = nn.functional.mse_loss(found, noise)
        update(state, loss)
        state.metrics["loss"] = loss.detach()

    objects = {"model": unet, "optimizer": update.optimizer, "ema": ema}
    engine = Engine(step, update, objects=objects)

    @engine.on(Events.STEP_COMPLETED)
    def average(state):
        ema.step(unet.parameters())

    pictures = torch.rand(44, 1, 8, 8)
    return Trial(engine, torch.utils.data.DataLoader(pictures, 4, shuffle=True))
