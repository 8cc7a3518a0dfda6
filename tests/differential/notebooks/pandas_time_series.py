"""Dates, windows and a plot."""

# %%
# %matplotlib inline
import numpy as np
import pandas as pd

rng = np.random.default_rng(3)
days = pd.date_range('2024-01-01', periods=90, freq='D')
series = pd.Series(rng.normal(0, 1, 90).cumsum(), index=days, name='level')
series.tail()

# %%
weekly = series.resample('W').mean()
weekly.round(2)

# %%
smooth = series.rolling(7).mean()
frame = pd.concat([series, smooth.rename('smooth')], axis=1)
frame.dropna().head()

# %%
axes = frame.plot(figsize=(6, 3), title='a random walk')

# %%
axes.figure

# %%
frame.loc['2024-02', 'level'].max(), frame.index[0].day_name()

# %%
frame.index = frame.index.tz_localize('UTC').tz_convert('Asia/Tokyo')
frame.iloc[:2]

# %%
frame['month'] = frame.index.month_name()
frame.groupby('month', sort=False).level.std()
