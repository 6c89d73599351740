"""galore-torch: optimizers that project gradients to a low rank."""

from crossing import exact, told, trained_by


def low_rank(model):
    """Two groups of parameters: the first weight, which is projected, and the rest."""
    wide, *rest = model.parameters()
    settings = {"rank": 4, "update_proj_gap": 5, "scale": 0.25, "proj_type": "std"}
    return [{"params": rest}, {"params": [wide], **settings}]


@told(
    "galore-torch",
    "Optimizers",
    "a subclass whose `state_dict` has the projectors' values, as in the exact row",
    match="projector is a .*GaLoreProjector",
)
def test_adamw(folder):
    """GaLoreAdamW, whose state holds projectors, objects of the library."""
    from galore_torch import GaLoreAdamW

    return trained_by(lambda model: GaLoreAdamW(low_rank(model), lr=0.01))


@exact("galore-torch", "Optimizers", "class Saved(GaLoreAdamW): ...")
def test_saved_projectors(folder):
    """GaLoreAdamW in a subclass that saves what its projectors hold."""
    from galore_torch import GaLoreAdamW
    from galore_torch.galore_projector import GaLoreProjector

    class Saved(GaLoreAdamW):
        def state_dict(self):
            plain = super().state_dict()
            for key, each in plain["state"].items():
                if "projector" in each:
                    held = vars(each["projector"])
                    values = {name: one for name, one in held.items() if type(one) is not str}
                    plain["state"][key] = {**each, "projector": values}
            return plain

        def load_state_dict(self, plain):
            super().load_state_dict(plain)
            for group in self.param_groups:
                for each in group["params"]:
                    if values := self.state[each].get("projector"):
                        projector = GaLoreProjector(group["rank"], proj_type=group["proj_type"])
                        vars(projector).update(values)
                        self.state[each]["projector"] = projector

    return trained_by(lambda model: Saved(low_rank(model), lr=0.01))
