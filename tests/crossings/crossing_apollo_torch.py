"""apollo-torch: optimizers that scale gradients by what a projection of them tells."""

from crossing import exact, told, trained_by


def low_rank(model):
    """Two groups of parameters: the first weight, which is projected, and the rest."""
    wide, *rest = model.parameters()
    settings = {
        **{"rank": 4, "update_proj_gap": 5, "scale": 1.0, "proj": "random"},
        **{"proj_type": "std", "scale_type": "channel"},
    }
    return [{"params": rest}, {"params": [wide], **settings}]


@told(
    "apollo-torch",
    "Optimizers",
    "a subclass whose `state_dict` has the projectors' values, as in the exact row",
    match="projector is a .*GradientProjector",
)
def test_adamw(folder):
    """APOLLOAdamW, whose state holds projectors, objects of the library."""
    from apollo_torch import APOLLOAdamW

    return trained_by(lambda model: APOLLOAdamW(low_rank(model), lr=0.01))


@exact("apollo-torch", "Optimizers", "class Saved(APOLLOAdamW): ...")
def test_saved_projectors(folder):
    """APOLLOAdamW in a subclass that saves what its projectors hold."""
    from apollo_torch import APOLLOAdamW
    from apollo_torch.random_projector import GradientProjector

    class Saved(APOLLOAdamW):
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
                        projector = GradientProjector(group["rank"], proj_type=group["proj_type"])
                        vars(projector).update(values)
                        self.state[each]["projector"] = projector

    return trained_by(lambda model: Saved(low_rank(model), lr=0.01))
