# SPDX-License-Identifier: Apache-2.0
import pytest


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty directory, and the tests in it."""
    monkeypatch.chdir(tmp_path)
    return tmp_path
