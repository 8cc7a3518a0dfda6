"""A module and its Trainer (PyTorch Lightning)."""

# %%
import logging
import warnings

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

logging.getLogger('lightning.pytorch').setLevel(logging.ERROR)
warnings.filterwarnings('ignore')
L.seed_everything(1, verbose=False)

# %%
x = torch.linspace(-1, 1, 64).unsqueeze(1)
y = x**2
loader = DataLoader(TensorDataset(x, y), batch_size=16, shuffle=True)

# %%
class Curve(L.LightningModule):
    def __init__(self, hidden=8):
        super().__init__()
        self.save_hyperparameters()
        self.net = nn.Sequential(nn.Linear(1, hidden), nn.Tanh(), nn.Linear(hidden, 1))
        self.seen = []

    def training_step(self, batch, number):
        x, y = batch
        loss = nn.functional.mse_loss(self.net(x), y)
        self.log('loss', loss)
        self.seen.append(loss.item())
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), 0.02)


curve = Curve()
curve.hparams

# %%
trainer = L.Trainer(max_epochs=5, accelerator='cpu', logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
trainer.max_epochs

# %%
trainer.fit(curve, loader)
len(curve.seen), round(curve.seen[-1], 5)

# %%
trainer.callback_metrics, trainer.current_epoch

# %%
with torch.no_grad():
    error = (curve.net(x) - y).abs().mean().item()
round(error, 4)

# %%
trainer.save_checkpoint('curve.ckpt')
again = Curve.load_from_checkpoint('curve.ckpt', weights_only=False)
torch.equal(again.net[0].weight, curve.net[0].weight)
