"""Regressions with tables (statsmodels)."""

# %%
import numpy as np
import pandas as pd
import statsmodels.api as sm
import statsmodels.formula.api as smf

rng = np.random.default_rng(6)
frame = pd.DataFrame({'x': rng.normal(size=80), 'group': rng.choice(['a', 'b'], 80)})
frame['y'] = 2 * frame.x + (frame.group == 'b') + rng.normal(0, 0.5, 80)

# %%
fit = smf.ols('y ~ x + C(group)', frame).fit()
fit.params.round(3)

# %%
print(fit.summary().tables[1])

# %%
fit.conf_int().round(2)

# %%
logit = sm.Logit((frame.y > 0).astype(int), sm.add_constant(frame[['x']])).fit(disp=0)
round(logit.prsquared, 3)

# %%
fit.predict(pd.DataFrame({'x': [0.0, 1.0], 'group': ['a', 'b']})).round(3)

# %%
table = sm.stats.anova_lm(fit)
table.round(3)

# %%
resid = fit.resid
float(abs(resid.mean()) < 1e-9)
