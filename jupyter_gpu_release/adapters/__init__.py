"""Knowledge of libraries: one file or sub-package for each. The rest of the package asks it through the registry."""
