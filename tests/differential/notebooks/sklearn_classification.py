"""From data to a confusion matrix."""

# %%
from sklearn.datasets import load_iris
from sklearn.model_selection import train_test_split

iris = load_iris()
X_train, X_test, y_train, y_test = train_test_split(iris.data, iris.target, random_state=0)
X_train.shape, X_test.shape

# %%
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=500))
model

# %%
model.fit(X_train, y_train)
print(f'{model.score(X_test, y_test):.3f}')

# %%
from sklearn.metrics import classification_report, confusion_matrix

predicted = model.predict(X_test)
print(classification_report(y_test, predicted, target_names=iris.target_names))
confusion_matrix(y_test, predicted)

# %%
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsClassifier

search = GridSearchCV(KNeighborsClassifier(), {'n_neighbors': [1, 3, 5]}, cv=3)
search.fit(X_train, y_train)
search.best_params_

# %%
candidates = {'logistic': model, 'nearest': search.best_estimator_}
scores = {name: each.score(X_test, y_test) for name, each in candidates.items()}
best = max(scores, key=scores.get)
best, candidates['logistic'] is model

# %%
steps = [name for name, _ in model.steps]
model.named_steps['standardscaler'].mean_.round(2)

# %%
from sklearn.ensemble import RandomForestClassifier

forest = RandomForestClassifier(10, random_state=1).fit(X_train, y_train)
forest.feature_importances_.round(3)

# %%
LogisticRegression().predict(X_test)
