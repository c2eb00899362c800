# task: 9.1
# deserves: 10
import warnings


def double(x):
    warnings.warn("old", DeprecationWarning)
    return 2 * x
