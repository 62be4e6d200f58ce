"""Settings of the property tests in this folder."""

from hypothesis import settings

# A busy machine is no failure: what takes too long shows in `--durations`, not as a red test.
settings.register_profile("protocol", deadline=None)
settings.load_profile("protocol")
