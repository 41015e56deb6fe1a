"""What all tests share: property tests have no deadline, for one slow example on a busy machine proves nothing."""

import signal

from hypothesis import HealthCheck, settings

# A shell that starts a job in the background has it ignore Ctrl-C, and every process of the tests would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile(
    "warpgrade", deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
settings.load_profile("warpgrade")
