"""Memory of all kinds is counted for a runner as a whole, and gone when it is dead."""


def test_no_memory_is_made_that_no_limit_counts(starter, ask):
    results = ask(starter, "burdens:hide_memory")
    for name in ("plain message", "pipe"):
        assert results.pop(name) == "allowed"
    for name in ("memfd", "secret"):
        assert results.pop(name) == "ENOSYS"
    assert set(results.values()) == {"EPERM"}, results
