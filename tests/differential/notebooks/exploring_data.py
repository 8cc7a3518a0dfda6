"""Exploring a table, as on Kaggle: groups, merges, pictures, styles, progress bars (pandas, matplotlib, tqdm, ipywidgets)."""

# %%
# %matplotlib inline
import os
import warnings

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from IPython.display import HTML, Markdown, display
from tqdm.auto import tqdm

warnings.filterwarnings('ignore')
pd.set_option('display.max_columns', 50, 'display.precision', 3)
plt.style.use('ggplot')
plt.rcParams['figure.figsize'] = (6, 3)
SEED = 42
np.random.seed(SEED)

# %%
os.makedirs('input', exist_ok=True)
n = 300
raw = pd.DataFrame({
    'PassengerId': np.arange(1, n + 1),
    'Survived': np.random.binomial(1, 0.4, n),
    'Pclass': np.random.choice([1, 2, 3], n, p=[0.2, 0.3, 0.5]),
    'Sex': np.random.choice(['male', 'female'], n),
    'Age': np.where(np.random.rand(n) < 0.2, np.nan, np.random.normal(30, 12, n).clip(1, 80).round()),
    'Fare': np.random.gamma(2, 15, n).round(2),
    'Embarked': np.random.choice(['S', 'C', 'Q', None], n, p=[0.7, 0.18, 0.1, 0.02]),
})
raw.to_csv('input/train.csv', index=False)

# %%
# !ls input

# %%
train = pd.read_csv('input/train.csv')
train.head()

# %%
train.info()

# %%
train.describe(include='all')

# %%
display(Markdown('## Missing values'))
missing = train.isnull().sum().sort_values(ascending=False)
missing[missing > 0].to_frame('missing').style.bar(color='lightblue').set_caption('per column').set_uuid('m')

# %%
# %%time
by_class = train.groupby(['Pclass', 'Sex'], observed=True).agg(n=('Survived', 'size'), rate=('Survived', 'mean'), fare=('Fare', 'median'))
by_class

# %%
train['Age'] = train.groupby('Sex')['Age'].transform(lambda s: s.fillna(s.median()))
train['Embarked'] = train['Embarked'].fillna(train['Embarked'].mode()[0])
train['AgeBand'] = pd.cut(train['Age'], [0, 12, 18, 40, 65, 100], labels=['child', 'teen', 'adult', 'middle', 'old'])
train.isnull().sum().sum()

# %%
ports = pd.DataFrame({'Embarked': ['S', 'C', 'Q'], 'Port': ['Southampton', 'Cherbourg', 'Queenstown']})
full = train.merge(ports, on='Embarked', how='left', validate='m:1')
full['Port'] = full['Port'].astype('category')
full.pivot_table(index='Port', columns='Pclass', values='Fare', aggfunc='mean', observed=True)

# %%
fig, axes = plt.subplots(1, 2, figsize=(8, 3))
full['Age'].hist(bins=20, ax=axes[0])
full.groupby('AgeBand', observed=True)['Survived'].mean().plot.bar(ax=axes[1], rot=0)
axes[0].set_title('Age')
plt.tight_layout()
plt.show()

# %%
def plot_feature(frame, name, *, palette=None):
    """A bar for each value."""
    counts = frame[name].value_counts().sort_index()
    ax = counts.plot(kind='bar', color=palette or COLOURS)
    ax.set_xlabel(name)
    for bar in ax.patches:
        ax.annotate(str(int(bar.get_height())), (bar.get_x(), bar.get_height()))
    return ax


COLOURS = ['#66c2a5', '#fc8d62', '#8da0cb']

# %%
for name in ['Pclass', 'Port']:
    plot_feature(full, name)
    plt.show()

# %%
totals = {}
for name in tqdm(['Age', 'Fare'], disable=True):
    totals[name] = full[name].sum()
totals

# %%
correlations = full.select_dtypes('number').corr()
correlations.style.background_gradient(cmap='coolwarm').format('{:.2f}').set_uuid('c')

# %%
plt.imshow(correlations, cmap='coolwarm', vmin=-1, vmax=1)
plt.colorbar()
plt.xticks(range(len(correlations)), correlations.columns, rotation=45)

# %%
with pd.option_context('display.max_rows', 5):
    display(full[['PassengerId', 'Age']])

# %%
full.query('Age > @limit and Sex == "female"') if (limit := 60) else None

# %%
ages = full['Age']
ages.iloc[0] = 99
full.loc[0, 'Age'], ages.iloc[0]

# %%
full.set_index('PassengerId', inplace=True)
full.drop(columns=['AgeBand'], inplace=True)
full.columns.tolist(), full.index.name

# %%
pd.get_dummies(full, columns=['Sex', 'Port'], drop_first=True).dtypes

# %%
HTML('<b>done</b>')

# %%
submission = full.reset_index()[['PassengerId', 'Survived']]
submission.to_csv('submission.csv', index=False)
pd.read_csv('submission.csv').shape

# %%
import ipywidgets as widgets

slider = widgets.IntSlider(value=3, min=0, max=10)
slider.value

# %%
slider.value = 5
slider.value

# %%
out = widgets.Output()
with out:
    print('inside')

# %%
np.random.rand(3), full.sample(2, random_state=SEED).index.tolist(), full.sample(2).index.tolist()
