"""A posterior with no options set: mode, whitening, choice of a sampler, a run until there are enough draws, a
certificate.
"""

from svrhmc.posterior.automatic import sample
from svrhmc.posterior.certificate import Bias, Certificate
from svrhmc.posterior.choice import METHODS
from svrhmc.posterior.correction import Corrected, Location
from svrhmc.posterior.result import Posterior

__all__ = ["METHODS", "Bias", "Certificate", "Corrected", "Location", "Posterior", "sample"]
