"""Place of a stage among all stages of a grade, and an estimate of the remaining time. Pure."""

from collections.abc import Mapping, Sequence


class StageTrack:
    """Begun stages, out of the planned stages."""

    def __init__(self, stages: Sequence[str] = (), usual_s: Mapping[str, float] | None = None) -> None:
        """Start before the first stage. Without planned stages, places and estimates are empty."""
        self._stages = tuple(stages)
        self._usual_s = dict(usual_s or {})
        self._begun: list[str] = []

    def begin(self, name: str) -> None:
        """Begin a stage. A repeated stage keeps the highest place."""
        if name in self._stages and name not in self._begun:
            self._begun.append(name)

    def place(self, name: str) -> str:
        """Return the place of the running stage: `3 of 6`; empty for an unplanned stage.

        >>> track = StageTrack(["read", "build", "check"])
        >>> track.begin("read"); track.begin("build"); track.place("build")
        '2 of 3'
        """
        return f"{len(self._begun)} of {len(self._stages)}" if name in self._stages else ""

    def estimate(self, name: str, elapsed_s: float) -> str:
        """Return the time left after `elapsed_s` of the stage `name`; empty if any remaining stage has no usual time.

        >>> track = StageTrack(["build", "check"], {"build": 20.0, "check": 4.0})
        >>> track.begin("build"); track.estimate("build", 5.0), track.estimate("build", 25.0)
        ('about 19 s left', 'longer than usual')
        """
        if name not in self._stages:
            return ""
        ahead = [stage for stage in self._stages if stage not in self._begun]
        if any(stage not in self._usual_s for stage in (name, *ahead)):
            return ""
        here_s = self._usual_s[name] - elapsed_s
        if here_s < 0 and elapsed_s >= _NOTICED_S:
            return "longer than usual"
        left_s = max(here_s, 0.0) + sum(self._usual_s[stage] for stage in ahead)
        return f"about {max(round(left_s), 1)} s left"


_NOTICED_S = 2.0
"""Shorter stages get no remark."""
