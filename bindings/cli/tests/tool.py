# SPDX-License-Identifier: Apache-2.0
"""What the tests of the tool `tartan` share. TARTAN_CLI names the tool."""

import json
import os
import pathlib
import resource
import signal
import struct
import subprocess
import zlib

import numpy as np
import scipy.io
import scipy.sparse as sp

HERE = pathlib.Path(__file__).resolve().parent
CLI = os.environ.get("TARTAN_CLI") or os.path.join(os.environ.get("TARTAN_BUILD", ""), "bindings/cli/tartan")


def environment(**changes):
    env = {**os.environ, **changes}
    # A sanitizer's allocator would end the tool where the system's returns NULL.
    env["ASAN_OPTIONS"] = env.get("ASAN_OPTIONS", "") + ":allocator_may_return_null=1"
    return env


def run(*arguments, code=0, text=None, stdout=subprocess.PIPE, limit=None, **env):
    """Runs the tool; its exit code, and what it says on standard error, must be as expected."""

    def prepare():
        if limit is not None:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    result = subprocess.run([CLI, *map(str, arguments)], stdout=stdout, stderr=subprocess.PIPE, env=environment(**env),
                            encoding="utf-8", errors="replace", timeout=1200, preexec_fn=prepare)
    assert result.returncode == code, (arguments, result.returncode, result.stdout, result.stderr)
    if code == 0:
        assert result.stderr == "", result.stderr
    elif code == 1:
        assert result.stderr.startswith("tartan: "), result.stderr
        assert len(result.stderr.strip()) > len("tartan:") + 5
    if text is not None:
        assert text in result.stderr
    return result.stdout


def survives(*arguments):
    """Success or a plain failure with its reason, whatever the input."""
    result = subprocess.run([CLI, *map(str, arguments)], capture_output=True, env=environment(), timeout=1200)
    message = result.stderr.decode("utf-8", "replace")
    assert result.returncode in (0, 1), (arguments, result.returncode, message)
    assert result.returncode == 0 or message.startswith("tartan: "), message
    assert "runtime error" not in message and "Sanitizer" not in message, message
    return result.returncode == 0


def files_in(folder):
    return sorted(path.name for path in pathlib.Path(folder).iterdir())


# ---- Pictures ----


def read_png(path):
    """Pixels of an 8-bit RGB picture, by the standard library alone."""
    data = pathlib.Path(path).read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    at, packed = 8, b""
    while at < len(data):
        size, kind = struct.unpack(">I4s", data[at:at + 8])
        chunk = data[at + 8:at + 8 + size]
        assert struct.unpack(">I", data[at + 8 + size:at + 12 + size])[0] == zlib.crc32(kind + chunk)
        if kind == b"IHDR":
            width, height, depth, color, _, _, interlace = struct.unpack(">IIBBBBB", chunk)
            assert (depth, color, interlace) == (8, 2, 0)
        packed += chunk if kind == b"IDAT" else b""
        at += 12 + size
    lines = np.frombuffer(zlib.decompress(packed), np.uint8).reshape(height, 1 + 3 * width).astype(int)
    image = np.zeros((height + 1, width + 1, 3), int)  # with a border of zeros above and to the left
    for y in range(height):
        kind, line = lines[y, 0], lines[y, 1:].reshape(width, 3)
        for x in range(width):
            left, up, corner = image[y + 1, x], image[y, x + 1], image[y, x]
            guess = left + up - corner
            paeth = np.where((abs(guess - left) <= abs(guess - up)) & (abs(guess - left) <= abs(guess - corner)), left,
                             np.where(abs(guess - up) <= abs(guess - corner), up, corner))
            image[y + 1, x + 1] = (line[x] + [0, left, up, (left + up) // 2, paeth][kind]) % 256
    return image[1:, 1:]


def braille(text):
    """The dots of a picture in braille characters."""
    lines = [line for line in text.splitlines() if line and all(0x2800 <= ord(c) < 0x2900 for c in line)]
    dots = np.zeros((4 * len(lines), 2 * max(map(len, lines))), bool)
    bits = [(0, 0), (1, 0), (2, 0), (0, 1), (1, 1), (2, 1), (3, 0), (3, 1)]
    for y, line in enumerate(lines):
        for x, c in enumerate(line):
            for bit, (dy, dx) in enumerate(bits):
                dots[4 * y + dy, 2 * x + dx] = (ord(c) - 0x2800) >> bit & 1
    return dots


# ---- Files of other programs ----


def sparse(rows=48, cols=80, seed=0, density=0.1):
    rng = np.random.default_rng(seed)
    a = sp.random(rows, cols, density, random_state=np.random.RandomState(seed), data_rvs=rng.standard_normal)
    return a.tocsr()


DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "I64": "<i8", "I32": "<i4"}


def to_bf16(a):
    """bfloat16 bits, rounded to nearest even."""
    bits = np.asarray(a, np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def from_bf16(bits):
    return (np.asarray(bits, np.uint32) << 16).view(np.float32)


def write_safetensors(path, tensors, metadata=None, padding=0):
    """tensors: name -> (type, array of DTYPES[type])"""
    header, body = {"__metadata__": metadata} if metadata else {}, b""
    for name, (kind, array) in tensors.items():
        data = np.ascontiguousarray(array, DTYPES[kind]).tobytes()
        header[name] = {"dtype": kind, "shape": list(array.shape), "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    text = json.dumps(header).encode() + b" " * padding
    pathlib.Path(path).write_bytes(struct.pack("<Q", len(text)) + text + body)


def read_safetensors(path):
    data = pathlib.Path(path).read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    assert size % 8 == 0
    header, body = json.loads(data[8:8 + size]), data[8 + size:]
    metadata, end, arrays = header.pop("__metadata__"), 0, {}
    for name, tensor in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        begin, stop = tensor["data_offsets"]
        assert begin == end
        end = stop
        arrays[name] = np.frombuffer(body[begin:stop], DTYPES[tensor["dtype"]]).reshape(tensor["shape"])
    assert end == len(body)
    return metadata, {name: header[name]["dtype"] for name in header}, arrays


def load(path):
    """What the tool wrote, as a dense f64 matrix."""
    path = pathlib.Path(path)
    if path.suffix == ".npy":
        return np.load(path).astype(np.float64)
    if path.suffix == ".npz":
        return sp.load_npz(path).toarray().astype(np.float64)
    if path.suffix == ".mtx":
        return scipy.io.mmread(path).toarray().astype(np.float64)
    if path.suffix == ".h5":
        run("convert", path, "back.npy")
        return np.load("back.npy").astype(np.float64)
    metadata, types, arrays = read_safetensors(path)
    rows, cols = map(int, metadata["shape"].split(","))
    (name,) = [key[:-7] for key in arrays if key.endswith(".blocks")]
    blocks = arrays[name + ".blocks"]
    blocks = from_bf16(blocks) if types[name + ".blocks"] == "BF16" else blocks
    pointers, indices = arrays[name + ".indptr"], arrays[name + ".indices"]
    _, br, bc = blocks.shape
    dense = np.zeros((-(-rows // br) * br, -(-cols // bc) * bc))
    for row in range(len(pointers) - 1):
        for w in range(pointers[row], pointers[row + 1]):
            col = indices[w]
            dense[row * br:row * br + br, col * bc:col * bc + bc] = blocks[w]
    return dense[:rows, :cols]
