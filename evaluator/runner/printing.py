"""What a submission prints on its way to the judge: Python's streams, and those of C and C++ below them.

A runner is killed, not ended, so what is still in a buffer then is lost. Up to the end of its first call all is
written line by line: that is where most crash, and a crash in C++ flushes nothing. Later calls print into buffers,
which are written out at the next `Prepare`, off the clock, and when the judge hangs up.
"""

import contextlib
import ctypes
import os
import sys
from typing import Any

_LINES, _BLOCKS = 1, 0  # setvbuf's _IOLBF and _IOFBF, as glibc and musl number them
_BUFFER_BYTES = 1 << 14
_CXX_STREAMS = ("_ZSt4cout", "_ZSt4clog")
_CXX_FLUSH = "_ZNSo5flushEv"
_CXX_MAKE = "_ZNSt8ios_base4InitC1Ev"  # std::ios_base::Init::Init()


class Printing:
    """The buffers of this process's output."""

    def __init__(self) -> None:
        """Write line by line until `in_blocks`. Nothing may have been printed yet."""
        self._c = ctypes.CDLL(None)
        # C's own for as long as this process lives.
        self._buffers = {mode: ctypes.create_string_buffer(_BUFFER_BYTES) for mode in (_LINES, _BLOCKS)}
        # Functions of C's are given the address that the variable `stdout` holds.
        self._stdout = self._pointer("stdout")
        self._cxx = _with_streams("libstdc++.so.6")
        self._by_line = True
        self._set(_LINES)

    def in_blocks(self) -> None:
        """Write when a buffer is full, or at `flush`; from now on."""
        if self._by_line:
            self._by_line = False
            self._set(_BLOCKS)

    def flush(self) -> None:
        """Write out what was printed, through whatever the submission left in the place of Python's streams."""
        for python in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                python.flush()
        if self._cxx is not None:  # Its streams have buffers of their own after sync_with_stdio(false).
            for name in _CXX_STREAMS:
                stream = ctypes.c_char.in_dll(self._cxx, name)
                self._cxx[_CXX_FLUSH](ctypes.c_void_p(ctypes.addressof(stream)))
        if self._stdout is not None:
            self._c.fflush(self._stdout)

    def _set(self, mode: int) -> None:
        if self._stdout is not None:
            self._c.setvbuf(self._stdout, self._buffers[mode], mode, ctypes.c_size_t(_BUFFER_BYTES))
            # Takes glibc out of writing; else it writes the first piece of the next line by itself. A pipe stays as is.
            self._c.fseek(self._stdout, ctypes.c_long(0), os.SEEK_CUR)
        with contextlib.suppress(Exception):  # A submission may have closed it, or put something else there.
            python: Any = sys.__stdout__
            python.reconfigure(line_buffering=mode == _LINES)

    def _pointer(self, name: str) -> ctypes.c_void_p | None:
        try:
            return ctypes.c_void_p.in_dll(self._c, name)
        except ValueError:  # A C library that has no such variable.
            return None


def _with_streams(library: str) -> ctypes.CDLL | None:
    """Give the C++ library that PyTorch has loaded, its streams made; None where there is none of that name.

    Before version 13 they are made by the first file that includes <iostream>; making them again changes nothing.
    """
    with contextlib.suppress(OSError, AttributeError):
        found = ctypes.CDLL(library)
        found[_CXX_MAKE](ctypes.create_string_buffer(8))
        return found
    return None
