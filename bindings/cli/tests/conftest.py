# SPDX-License-Identifier: Apache-2.0
import os

import pytest


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty directory, and the tests in it."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def dummy():
    """The folder of the plug-in that poses as a device, for TARTAN_PLUGIN_PATH."""
    folder = os.environ.get("TARTAN_DUMMY_PLUGIN", "")
    if not os.path.exists(os.path.join(folder, "libtartan_cuda.so")):
        pytest.skip("TARTAN_DUMMY_PLUGIN does not name the folder of the dummy device")
    return folder
