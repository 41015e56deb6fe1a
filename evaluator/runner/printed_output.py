"""Buffering of submission output: Python's streams, and the C and C++ streams below.

A runner is killed, not exited, so unflushed output is lost. Up to the end of the first call all output is line
buffered: most crashes occur there, and a C++ crash flushes nothing. Later calls use block buffers, flushed at the next
`Prepare` (outside the timed interval) and at the end of the connection.
"""

import contextlib
import ctypes
import os
import sys
from typing import Any

_LINES, _BLOCKS = 1, 0  # _IOLBF and _IOFBF of setvbuf, as numbered by glibc and musl
_BUFFER_BYTES = 1 << 14
_CXX_STREAMS = ("_ZSt4cout", "_ZSt4clog")
_CXX_FLUSH = "_ZNSo5flushEv"
_CXX_MAKE = "_ZNSt8ios_base4InitC1Ev"  # std::ios_base::Init::Init()


class Printing:
    """Output buffers of this process."""

    def __init__(self) -> None:
        """Use line buffering until `in_blocks`. Call before any output."""
        self._c = ctypes.CDLL(None)
        # setvbuf uses the buffers for the lifetime of the process.
        self._buffers = {mode: ctypes.create_string_buffer(_BUFFER_BYTES) for mode in (_LINES, _BLOCKS)}
        # C functions take the address held by the variable `stdout`.
        self._stdout = self._pointer("stdout")
        self._cxx = _with_streams("libstdc++.so.6")
        self._by_line = True
        self._set(_LINES)

    def in_blocks(self) -> None:
        """Switch to block buffering, with writes at a full buffer or at `flush`."""
        if self._by_line:
            self._by_line = False
            self._set(_BLOCKS)

    def flush(self) -> None:
        """Flush all output, including replaced Python streams."""
        for python in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                python.flush()
        if self._cxx is not None:  # C++ streams buffer separately after sync_with_stdio(false).
            for name in _CXX_STREAMS:
                stream = ctypes.c_char.in_dll(self._cxx, name)
                self._cxx[_CXX_FLUSH](ctypes.c_void_p(ctypes.addressof(stream)))
        if self._stdout is not None:
            self._c.fflush(self._stdout)

    def _set(self, mode: int) -> None:
        if self._stdout is not None:
            self._c.setvbuf(self._stdout, self._buffers[mode], mode, ctypes.c_size_t(_BUFFER_BYTES))
            # Ends glibc's write mode; otherwise glibc writes the first part of the next line separately. No effect on
            # pipes.
            self._c.fseek(self._stdout, ctypes.c_long(0), os.SEEK_CUR)
        with contextlib.suppress(Exception):  # A submission may have closed or replaced the stream.
            python: Any = sys.__stdout__
            python.reconfigure(line_buffering=mode == _LINES)

    def _pointer(self, name: str) -> ctypes.c_void_p | None:
        try:
            return ctypes.c_void_p.in_dll(self._c, name)
        except ValueError:  # The C library exports no such variable.
            return None


def _with_streams(library: str) -> ctypes.CDLL | None:
    """Return PyTorch's C++ library with initialized streams; None if no such library is loaded.

    Before libstdc++ 13, the first file that includes <iostream> initializes the streams. Repeated initialization is
    safe.
    """
    with contextlib.suppress(OSError, AttributeError):
        loaded = ctypes.CDLL(library)
        loaded[_CXX_MAKE](ctypes.create_string_buffer(8))
        return loaded
    return None
