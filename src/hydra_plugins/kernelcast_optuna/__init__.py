"""A Hydra sweeper on Optuna's ask and tell.

The published plugin wants Optuna before version 3 and stops at the first NaN
(https://github.com/facebookresearch/hydra/issues/3024, https://github.com/facebookresearch/hydra/issues/3333).
Hydra takes sweepers from the namespace `hydra_plugins` alone, and imports all of it at every start but modules whose
names begin with `_`: those are imported when used, and Optuna with them.
"""
