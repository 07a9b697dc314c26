"""How Hypothesis draws."""

from hypothesis import HealthCheck, settings

settings.register_profile("noisy machines", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("noisy machines")
