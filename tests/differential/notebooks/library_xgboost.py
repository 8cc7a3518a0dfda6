"""Boosted trees on two classes (xgboost)."""

# %%
import numpy as np
import xgboost as xgb
from sklearn.datasets import make_classification

X, y = make_classification(300, 8, random_state=3)
train, test = xgb.DMatrix(X[:200], y[:200]), xgb.DMatrix(X[200:], y[200:])
train.num_row(), test.num_col()

# %%
settings = {'objective': 'binary:logistic', 'max_depth': 3, 'eta': 0.3, 'seed': 0, 'nthread': 1}
progress = {}
booster = xgb.train(settings, train, 15, evals=[(test, 'test')], evals_result=progress, verbose_eval=5)

# %%
round(progress['test']['logloss'][-1], 4), booster.num_boosted_rounds()

# %%
guess = booster.predict(test)
float(((guess > 0.5) == y[200:]).mean())

# %%
model = xgb.XGBClassifier(n_estimators=10, max_depth=2, n_jobs=1, random_state=0)
model.fit(X[:200], y[:200])
model.score(X[200:], y[200:])

# %%
model.feature_importances_.round(3)

# %%
booster.save_model('trees.json')
again = xgb.Booster(model_file='trees.json')
np.allclose(again.predict(test), guess)

# %%
models = {'one': model}
models['one'].set_params(n_estimators=12).fit(X[:200], y[:200])
model.n_estimators, models['one'] is model
