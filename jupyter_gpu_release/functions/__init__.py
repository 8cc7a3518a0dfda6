"""Functions on the cluster, from notebooks and from plain scripts: ``launch(fn, …)`` and ``@gpu(…)``."""
