import pytest

from evaluator.cache import eviction
from evaluator.cache.build_cache import forget, look_up, measured_once
from evaluator.records import Record


def form_of(**fields):
    """Make a record in a record, always by the same names."""
    inner = type("Inner", (Record,), {"__annotations__": fields}, frozen=True)
    return type("Outer", (Record,), {"__annotations__": {"inner": inner}}, frozen=True), inner


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("WARPGRADE_CACHE", str(tmp_path))


def test_what_was_made_is_not_made_again():
    outer, inner = form_of(a=int)
    assert measured_once(["it"], outer, lambda: outer(inner(1))).inner.a == 1
    assert measured_once(["it"], outer, lambda: pytest.fail("it was made again")).inner.a == 1
    assert look_up(["another"], outer) is None


@pytest.mark.parametrize("fields", [{"a": int, "b": int}, {"a": int, "b": int | None}, {"a": float}])
def test_it_is_made_anew_where_a_record_inside_of_it_changed(fields):
    outer, inner = form_of(a=int)
    measured_once(["it"], outer, lambda: outer(inner(1)))
    other, own = form_of(**fields)
    made = measured_once(["it"], other, lambda: other(own(*range(2, 2 + len(fields)))))
    assert made.inner.a == 2
    assert measured_once(["it"], other, lambda: pytest.fail("it was made again")).inner.a == 2


def test_what_could_not_be_made_is_not_kept():
    outer, _ = form_of(a=int)
    with pytest.raises(ValueError, match="no"):
        measured_once(["it"], outer, lambda: (_ for _ in ()).throw(ValueError("no")))
    assert look_up(["it"], outer) is None


def test_a_forgotten_measurement_is_made_again_and_kept():
    outer, inner = form_of(a=int)
    measured_once(["it"], outer, lambda: outer(inner(1)))
    forget(["it"], outer)
    assert look_up(["it"], outer) is None
    assert measured_once(["it"], outer, lambda: outer(inner(2))).inner.a == 2
    assert look_up(["it"], outer).inner.a == 2
    forget(["never made"], outer)


def test_an_endless_number_of_measurements_takes_limited_space(tmp_path, monkeypatch):
    """A service with problems as text stores a measurement for each new text."""
    limit_bytes = 200_000
    monkeypatch.setenv("WARPGRADE_CACHE_LIMIT", str(limit_bytes))
    monkeypatch.setattr(eviction, "RECENT_S", -1.0)
    monkeypatch.setattr(eviction, "_BETWEEN_TRIMS_S", -1.0)
    outer, inner = form_of(a=int)
    for number in range(100):
        assert measured_once(["text", number], outer, lambda number=number: outer(inner(number))).inner.a == number
    assert 0 < eviction.usage(tmp_path, limit_bytes).bytes <= limit_bytes
    assert look_up(["text", 99], outer) is not None
