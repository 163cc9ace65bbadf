from .devices import EPSILON, lennard_jones
