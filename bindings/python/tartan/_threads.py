# SPDX-License-Identifier: Apache-2.0
"""What threadpoolctl knows about Tartan. threadpoolctl is optional."""

from __future__ import annotations

import ctypes
from typing import Any

try:
    from threadpoolctl import LibController, register
except ImportError:  # there is none, or one without controllers of others (before 3.2)
    LibController = register = None

if register is not None:

    class TartanController(LibController):  # type: ignore[misc]
        """Finds the library, and limits its threads by `tartan.set_num_threads`."""

        user_api = "tartan"
        internal_api = "tartan"
        filename_prefixes = ("libtartan",)
        check_symbols = ("tartan_get_num_threads", "tartan_set_num_threads")

        def get_num_threads(self) -> int:
            return int(self.dynlib.tartan_get_num_threads())

        def set_num_threads(self, num_threads: int) -> Any:
            return self.dynlib.tartan_set_num_threads(num_threads)

        def get_version(self) -> str:
            version = self.dynlib.tartan_version
            version.restype = ctypes.c_char_p
            return bytes(version()).decode()

        def set_additional_attributes(self) -> None:
            pass

    register(TartanController)
