"""Work in several processes (joblib, loky, multiprocessing)."""

# %%
from math import sqrt

from joblib import Memory, Parallel, delayed, dump, load

Parallel(n_jobs=2)(delayed(sqrt)(n) for n in range(5))

# %%
def cube(n):
    return n**3


Parallel(n_jobs=2)(delayed(cube)(n) for n in range(4))

# %%
class Scale:
    def __init__(self, by):
        self.by = by

    def __call__(self, n):
        return self.by * n


scale = Scale(3)
Parallel(n_jobs=2)(delayed(scale)(n) for n in range(4))

# %%
dump({'scale': scale}, 'scale.joblib')
load('scale.joblib')['scale'](5)

# %%
isinstance(load('scale.joblib')['scale'], Scale)

# %%
calls = []
memory = Memory('cache', verbose=0)


def slow(n):
    calls.append(n)
    return n + 1


kept = memory.cache(slow)
kept(1), kept(1), calls

# %%
from concurrent.futures import ThreadPoolExecutor

with ThreadPoolExecutor(2) as pool:
    results = list(pool.map(cube, range(5)))
results

# %%
import multiprocessing

with multiprocessing.get_context('fork').Pool(2) as pool:
    print(pool.map(cube, range(5)))

# %%
from sklearn.datasets import load_iris
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import cross_val_score

iris = load_iris()
cross_val_score(RandomForestClassifier(8, random_state=0), iris.data, iris.target, cv=3, n_jobs=2).round(3)
