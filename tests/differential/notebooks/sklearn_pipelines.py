"""Pipelines with own transformers, searches in several processes, models on disk (scikit-learn, joblib)."""

# %%
import joblib
import numpy as np
import pandas as pd
from sklearn import set_config
from sklearn.base import BaseEstimator, ClassifierMixin, TransformerMixin, clone
from sklearn.compose import ColumnTransformer, make_column_selector
from sklearn.datasets import make_classification
from sklearn.ensemble import RandomForestClassifier, VotingClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import ConfusionMatrixDisplay, classification_report, make_scorer, roc_auc_score
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_score, learning_curve, train_test_split
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler

set_config(transform_output='pandas')
RANDOM_STATE = 0

# %%
X, y = make_classification(200, 6, n_informative=4, random_state=RANDOM_STATE)
X = pd.DataFrame(X, columns=[f'f{i}' for i in range(6)])
X['group'] = np.where(X['f0'] > 0, 'high', 'low')
X.loc[::17, 'f1'] = np.nan
X_train, X_test, y_train, y_test = train_test_split(X, y, stratify=y, random_state=RANDOM_STATE)
X_train.shape, y_train.mean().round(3)

# %%
class Clipper(BaseEstimator, TransformerMixin):
    """Clips columns to quantiles learnt in fit."""

    def __init__(self, low=0.01, high=0.99):
        self.low = low
        self.high = high

    def fit(self, X, y=None):
        X = pd.DataFrame(X)
        self.bounds_ = X.quantile(self.low), X.quantile(self.high)
        self.feature_names_in_ = np.array(X.columns)
        return self

    def transform(self, X):
        low, high = self.bounds_
        return pd.DataFrame(X).clip(low, high, axis=1)

    def get_feature_names_out(self, names=None):
        return self.feature_names_in_


class Majority(ClassifierMixin, BaseEstimator):
    def fit(self, X, y):
        self.classes_, counts = np.unique(y, return_counts=True)
        self.answer_ = self.classes_[counts.argmax()]
        return self

    def predict(self, X):
        return np.full(len(X), self.answer_)


def log_abs(X):
    return np.log1p(np.abs(X))

# %%
numeric = make_pipeline(SimpleImputer(strategy='median'), Clipper(), StandardScaler())
columns = ColumnTransformer([
    ('num', numeric, make_column_selector(dtype_include='number')),
    ('cat', OneHotEncoder(sparse_output=False), ['group']),
], verbose_feature_names_out=False)
pipe = Pipeline([('prep', columns), ('clf', LogisticRegression(max_iter=500))])
pipe

# %%
pipe.fit(X_train, y_train)

# %%
pipe.score(X_test, y_test), pipe[:-1].get_feature_names_out().tolist()

# %%
cv = StratifiedKFold(3, shuffle=True, random_state=RANDOM_STATE)
scores = cross_val_score(pipe, X_train, y_train, cv=cv, n_jobs=2)
scores.round(3)

# %%
def balanced(y_true, y_pred):
    return np.mean([(y_pred[y_true == c] == c).mean() for c in np.unique(y_true)])


search = GridSearchCV(pipe, {'clf__C': [0.1, 1, 10], 'prep__num__clipper__low': [0.0, 0.05]}, scoring=make_scorer(balanced), cv=cv, n_jobs=2)
search.fit(X_train, y_train)
search.best_params_, round(search.best_score_, 3)

# %%
pd.DataFrame(search.cv_results_)[['params', 'mean_test_score', 'rank_test_score']].sort_values('rank_test_score').head(3)

# %%
best = search.best_estimator_
best is search.best_estimator_, best['prep'] is best.named_steps['prep']

# %%
print(classification_report(y_test, best.predict(X_test)))

# %%
ConfusionMatrixDisplay.from_estimator(best, X_test, y_test);

# %%
joblib.dump(best, 'best.joblib', compress=3)
again = joblib.load('best.joblib')
type(again['prep'].named_transformers_['num'][1]) is Clipper, np.array_equal(again.predict(X_test), best.predict(X_test))

# %%
import pickle

pickle.loads(pickle.dumps(Majority().fit(X_train, y_train))).answer_, clone(best).get_params()['clf__C']

# %%
forest = RandomForestClassifier(20, random_state=RANDOM_STATE, n_jobs=2, oob_score=True)
forest.fit(best[:-1].transform(X_train), y_train)
forest.oob_score_.round(3), forest.feature_importances_.argmax()

# %%
union = FeatureUnion([('log', FunctionTransformer(log_abs, feature_names_out='one-to-one')), ('plain', 'passthrough')])
union.fit_transform(X_train[['f0', 'f2']]).shape

# %%
vote = VotingClassifier([('a', clone(pipe)), ('b', Majority())], voting='hard', n_jobs=2).fit(X_train, y_train)
vote.score(X_test, y_test), vote.named_estimators_['b'].answer_

# %%
sizes, train_scores, valid_scores = learning_curve(pipe, X_train, y_train, train_sizes=[0.3, 1.0], cv=cv, n_jobs=2)
sizes, valid_scores.mean(1).round(3)

# %%
results = joblib.Parallel(n_jobs=2)(joblib.delayed(balanced)(y_test, m.predict(X_test)) for m in (best, vote))
np.round(results, 3)

# %%
with joblib.parallel_backend('threading'):
    found = joblib.Parallel(n_jobs=2)(joblib.delayed(log_abs)(i) for i in range(3))
found

# %%
pipe.set_params(clf=Majority())
pipe.fit(X_train, y_train).score(X_test, y_test)

# %%
pipe.named_steps['clf'].answer_, pipe['prep'] is columns, numeric['clipper'].low

# %%
best.predict(X_test.drop(columns='f0'))
