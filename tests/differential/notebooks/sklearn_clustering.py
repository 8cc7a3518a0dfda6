"""Clusters and a projection, drawn."""

# %%
# %matplotlib inline
import matplotlib.pyplot as plt
import numpy as np
from sklearn.cluster import KMeans
from sklearn.datasets import make_blobs
from sklearn.decomposition import PCA

# %%
points, truth = make_blobs(120, n_features=4, centers=3, random_state=5)
kmeans = KMeans(3, n_init=4, random_state=0)

# %%
labels = kmeans.fit_predict(points)
np.bincount(labels), round(kmeans.inertia_, 2)

# %%
pca = PCA(2).fit(points)
flat = pca.transform(points)
pca.explained_variance_ratio_.round(3)

# %%
plt.figure(figsize=(4, 3))
plt.scatter(*flat.T, c=labels, s=8)
plt.title('three clusters')
plt.show()

# %%
inertias = []
for k in range(1, 6):
    inertias.append(KMeans(k, n_init=2, random_state=0).fit(points).inertia_)
plt.plot(range(1, 6), inertias, 'o-');
