"""Settings made in one cell hold in the next."""

# %%
import decimal

import numpy as np
import pandas as pd
import torch

# %%
np.seterr(divide='ignore');
pd.set_option('display.max_rows', 6)
decimal.getcontext().prec = 5
torch.set_grad_enabled(False);

# %%
np.array([1.0]) / 0

# %%
pd.Series(range(20))

# %%
decimal.Decimal(1) / 7

# %%
torch.ones(2, requires_grad=True).sum().requires_grad

# %%
torch.set_grad_enabled(True)
torch.set_default_dtype(torch.float64)

# %%
torch.ones(1).dtype, torch.is_grad_enabled()

# %%
import os

os.environ['MY_SETTING'] = 'on'

# %%
os.environ.get('MY_SETTING')

# %%
import sys

sys.setrecursionlimit(2500)

# %%
sys.getrecursionlimit()

# %%
torch.set_default_dtype(torch.float32)
np.geterr()['divide']
