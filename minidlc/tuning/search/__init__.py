"""What to try next: grid, random, annealing, evolution, a policy gradient, and a bandit over them.

    trials = explore(TableProblem(table), Evolution(), trials=64, seed=0, model=best_model())
    Annealing()(space, trials, score, 8, rng)       # the next eight points
    trials = explore(problem, Bandit((Evolution(), Annealing(), RandomSearch())))

Each is a function of the space, the trials so far, and a seeded source of random numbers. They keep
nothing between calls that the trials would not tell, so a run that was broken off goes on where it
stood. All end with [] when every point was tried. Treated in course chapter 06_autotune.
"""

from minidlc.tuning.search.annealing import Annealing
from minidlc.tuning.search.bandit import Bandit
from minidlc.tuning.search.evolution import Evolution
from minidlc.tuning.search.grid import GridSearch
from minidlc.tuning.search.policy import PolicyGradient
from minidlc.tuning.search.uniform import RandomSearch

__all__ = ["Annealing", "Bandit", "Evolution", "GridSearch", "PolicyGradient", "RandomSearch"]
