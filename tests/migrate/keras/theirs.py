import keras
import torch
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, Subset, TensorDataset

torch.manual_seed(0)
images, labels = map(torch.tensor, load_digits(return_X_y=True))
data = TensorDataset(images.float() / 16, labels)
shuffle = torch.Generator().manual_seed(0)
train_loader = DataLoader(Subset(data, range(1408)), 32, shuffle=True, generator=shuffle)
val_loader = DataLoader(Subset(data, range(1408, 1797)), 64)

model = keras.Sequential(
    [keras.Input((64,)), keras.layers.Dense(128, activation="relu"), keras.layers.Dense(10)]
)
model.compile(
    optimizer=keras.optimizers.SGD(0.1, global_clipnorm=1.0),
    loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    metrics=["accuracy"],
)
model.fit(
    train_loader,
    validation_data=val_loader,
    epochs=3,
    callbacks=[
        keras.callbacks.EarlyStopping("val_loss", patience=2, restore_best_weights=True),
        keras.callbacks.BackupAndRestore("runs/theirs"),
    ],
)
