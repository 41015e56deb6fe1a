"""Metrics of the service in Prometheus' format. No metric names a client, a problem or a submission."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from evaluator.service.journal import Final

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS = (0.1, 0.5, 1, 2, 5, 10, 30, 60, 120, 300, 600, 1800)


class Metrics:
    """Counters since the start of the server, and the present state of the queue."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._grades = Counter(
            "warpgrade_grades", "Grades that became final, by verdict or state", ["verdict"], registry=self._registry
        )
        self._seconds = Histogram(
            "warpgrade_grade_seconds",
            "Time from the queue's end to the stored card",
            buckets=_SECONDS,
            registry=self._registry,
        )
        self._refused = Counter(
            "warpgrade_refused_requests", "Refused requests, by HTTP status", ["status"], registry=self._registry
        )
        self._waiting = Gauge("warpgrade_waiting_grades", "Grades in the queue", registry=self._registry)
        self._grading = Gauge("warpgrade_grades_in_progress", "Grades handed to workers", registry=self._registry)

    def graded(self, final: Final, wall_s: float) -> None:
        """Count a grade that left the queue and became final."""
        self._grades.labels(final.verdict.value if final.verdict is not None else final.state.value).inc()
        self._seconds.observe(wall_s)

    def refused(self, status: int) -> None:
        """Count a refused request."""
        self._refused.labels(str(status)).inc()

    def show(self, *, waiting: int, grading: int) -> None:
        """Set the present state of the queue."""
        self._waiting.set(waiting)
        self._grading.set(grading)

    def text(self) -> bytes:
        """Return all metrics."""
        return generate_latest(self._registry)
