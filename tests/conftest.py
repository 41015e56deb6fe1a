"""What all tests share: property tests have no deadline; one slow example on a busy machine proves nothing."""

from hypothesis import HealthCheck, settings

settings.register_profile(
    "warpgrade", deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
settings.load_profile("warpgrade")
