"""What the first grade on a machine is said to wait for."""

from evaluator.cache.build_cache import BuildCache
from evaluator.compile import own_libraries
from evaluator.compile.device_builders import to_build, to_build_on_error
from evaluator.emulator.frontend.build_ladder import StepName
from evaluator.records import DeviceKind


def test_the_emulator_is_announced_until_it_is_there(monkeypatch, tmp_path):
    monkeypatch.setenv("WARPGRADE_CACHE", str(tmp_path))
    assert to_build(DeviceKind.EMULATED) == "building the emulator, once for this installation: about half a minute"
    assert (to_build(DeviceKind.CPU), to_build(DeviceKind.CUDA)) == ("", "")
    cache = BuildCache(tmp_path)
    cache.parts.put(own_libraries._runtime().key, b"a library", log="", wall_s=1.0)
    assert to_build(DeviceKind.EMULATED) == ""
    assert "810 MB" in to_build_on_error(DeviceKind.EMULATED)
    cache.parts.put(own_libraries._headers(StepName.FULL).key, b"headers", log="", wall_s=1.0)
    assert to_build_on_error(DeviceKind.EMULATED) == ""
