"""Arguments of a kernel's launch, with a driver that notes them."""

import ctypes
import gc

import pytest

from evaluator.devices import driver


class Rows(ctypes.Structure):
    _fields_ = (("rows", ctypes.c_int64), ("width", ctypes.c_int64))


@pytest.fixture
def launched(monkeypatch):
    """Note the arguments of launches as the driver reads them: from memory, during the call."""
    noted = []

    def call(function, _kernel, *rest):
        *grid, _stream, pointers, _extra = rest
        gc.collect()
        kinds = (ctypes.c_uint64, ctypes.c_double, Rows)
        read = [kind.from_address(place) for kind, place in zip(kinds, pointers, strict=True)]
        noted.append((function, [each.value for each in grid], read[0].value, read[1].value, read[2].width))

    monkeypatch.setattr(driver, "_call", call)
    return noted


def test_a_launch_passes_the_addresses_of_numbers_and_structures(launched):
    driver.launch(
        7, blocks=3, threads=64, stream=0, arguments=[ctypes.c_uint64(1 << 60), ctypes.c_double(0.5), Rows(2, 9)]
    )
    assert launched == [("cuLaunchKernel", [3, 1, 1, 64, 1, 1, 0], 1 << 60, 0.5, 9)]
