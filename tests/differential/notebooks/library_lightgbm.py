"""Boosted trees by leaves (lightgbm)."""

# %%
import lightgbm as lgb
import numpy as np
from sklearn.datasets import make_regression

X, y = make_regression(300, 6, noise=3.0, random_state=1)
settings = {'objective': 'l2', 'num_leaves': 7, 'verbose': -1, 'num_threads': 1, 'deterministic': True}

# %%
data = lgb.Dataset(X[:200], y[:200])
result = {}
booster = lgb.train(settings, data, 20, valid_sets=[lgb.Dataset(X[200:], y[200:], reference=data)], callbacks=[lgb.record_evaluation(result)])
round(result['valid_0']['l2'][-1], 2)

# %%
predicted = booster.predict(X[200:])
float(np.corrcoef(predicted, y[200:])[0, 1].round(3))

# %%
model = lgb.LGBMRegressor(n_estimators=15, num_leaves=5, verbose=-1, n_jobs=1, random_state=0)
model.fit(X[:200], y[:200])

# %%
model.feature_importances_, round(model.score(X[200:], y[200:]), 3)

# %%
booster.save_model('leaves.txt');
len(lgb.Booster(model_file='leaves.txt').feature_name())

# %%
for leaves in (3, 5):
    print(leaves, round(lgb.LGBMRegressor(n_estimators=5, num_leaves=leaves, verbose=-1, n_jobs=1).fit(X, y).score(X, y), 3))
