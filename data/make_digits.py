# SPDX-License-Identifier: Apache-2.0
"""Writes scikit-learn's handwritten digits as HDF5: images uint8 [1797, 64] (0 .. 16), labels uint8 [1797].

    python make_digits.py digits.h5
"""
import sys

import h5py
import numpy as np
from sklearn.datasets import load_digits

digits = load_digits()
with h5py.File(sys.argv[1], "w") as file:
    file.create_dataset("images", data=digits.data.astype(np.uint8), compression="gzip", shuffle=True, fletcher32=True)
    file.create_dataset("labels", data=digits.target.astype(np.uint8), compression="gzip", fletcher32=True)
    file.attrs["origin"] = "scikit-learn load_digits: UCI Optical Recognition of Handwritten Digits, test part"
