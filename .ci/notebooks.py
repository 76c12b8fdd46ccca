# SPDX-License-Identifier: Apache-2.0
"""Executes notebooks so that executing them again changes nothing: no times, versions, addresses or local paths are kept."""

import argparse
import importlib.util
import os
import pathlib
import re
import sys
import tempfile

import nbformat
from jupyter_client.kernelspec import KernelSpecManager, NoSuchKernel
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

ROOT = pathlib.Path(__file__).resolve().parent.parent

# Which kernel runs a language here, and what the notebook says of itself. Jupyter picks any other kernel of the same
# language, such as IJulia, where the named one is absent.
LANGUAGES = {
    "python": (
        "python3",
        {"name": "python3", "display_name": "Python 3", "language": "python"},
        {"name": "python", "file_extension": ".py", "mimetype": "text/x-python", "pygments_lexer": "ipython3"},
    ),
    "r": (
        "ir",
        {"name": "ir", "display_name": "R", "language": "R"},
        {"name": "R", "file_extension": ".r", "mimetype": "text/x-r-source", "pygments_lexer": "r"},
    ),
    "julia": (
        "julia-tartan",
        {"name": "julia", "display_name": "Julia", "language": "julia"},
        {"name": "julia", "file_extension": ".jl", "mimetype": "application/julia", "pygments_lexer": "julia"},
    ),
}


def language_of(notebook):
    meta = notebook.metadata
    name = meta.get("kernelspec", {}).get("language") or meta.get("language_info", {}).get("name") or ""
    if name.lower() not in LANGUAGES:
        raise ValueError("metadata.kernelspec.language is %r, expected python, R or julia" % name)
    return name.lower()


def why_not(kernel):
    """Why a kernel cannot run here, or None."""
    try:
        KernelSpecManager().get_kernel_spec(kernel)
    except NoSuchKernel:
        return "no Jupyter kernel '%s'" % kernel
    if kernel == "julia-tartan" and not os.environ.get("JULIA"):
        return "no Julia"
    return None


def missing_modules(notebook):
    """Why the notebook cannot run here, or None: its metadata names modules of Python beyond requirements.txt, such as torch."""
    wanted = notebook.metadata.get("tartan", {}).get("requires", [])
    missing = [name for name in wanted if importlib.util.find_spec(name) is None]
    return "no Python module %s" % ", ".join(missing) if missing else None


def steady_text(text):
    text = text.replace(str(ROOT) + "/", "").replace(str(ROOT), ".")
    text = text.replace(tempfile.gettempdir() + "/ipykernel_", "ipykernel_")
    text = re.sub(r"ipykernel_\d+/\d+\.py", "ipykernel", text)
    return re.sub(r"\b(at|@) 0x[0-9a-fA-F]{6,16}\b", r"\1 0x0", text)


def steady(value):
    if isinstance(value, str):
        return steady_text(value)
    if isinstance(value, list):
        return [steady(item) for item in value]
    return value


def merge_streams(outputs):
    """Each run of stream outputs as one of stdout and one of stderr: how they were cut and mixed is chance."""
    merged, streams = [], {}

    def flush():
        merged.extend(streams[name] for name in ("stdout", "stderr") if name in streams)
        streams.clear()

    for output in outputs:
        if output.output_type == "stream":
            if output.name in streams:
                streams[output.name].text += output.text
            elif output.text:
                streams[output.name] = output
        else:
            flush()
            merged.append(output)
    flush()
    return merged


def tidy(notebook, language):
    """Keeps what a reader sees, and nothing that differs between machines and runs."""
    _, kernelspec, language_info = LANGUAGES[language]
    kept = {"tartan": notebook.metadata["tartan"]} if "tartan" in notebook.metadata else {}
    notebook.metadata = nbformat.from_dict({"kernelspec": kernelspec, "language_info": language_info, **kept})
    for cell in notebook.cells:
        cell.metadata = nbformat.from_dict({"tags": cell.metadata.tags} if cell.metadata.get("tags") else {})
        if cell.cell_type != "code":
            continue
        cell.outputs = merge_streams(cell.outputs)
        for output in cell.outputs:
            if output.output_type == "stream":
                output.text = steady_text(output.text)
            elif output.output_type == "error":
                output.traceback = steady(output.traceback)
                output.evalue = steady_text(output.evalue)
            else:
                for mime in output.data:
                    if mime.startswith("text/") or mime == "image/svg+xml":
                        output.data[mime] = steady(output.data[mime])


def identify(notebook):
    """Cell ids that do not change: those there are, else the cell's number."""
    notebook.nbformat_minor = max(notebook.nbformat_minor, 5)
    for number, cell in enumerate(notebook.cells, 1):
        if "id" not in cell:
            cell["id"] = "cell-%d" % number


def read(path):
    # Not nbformat.read: it would invent random ids.
    return nbformat.from_dict(nbformat.reader.reads(path.read_text(encoding="utf-8")))


def store(path, notebook):
    text = nbformat.writes(notebook).rstrip("\n") + "\n"
    if text == path.read_text(encoding="utf-8"):
        return
    new = path.with_suffix(".ipynb.new")
    new.write_text(text, encoding="utf-8")
    os.replace(new, path)


def execute(path, check, timeout):
    """('ok' | 'skip' | 'fail', message)"""
    try:
        notebook = read(path)
        language = language_of(notebook)
        kernel = LANGUAGES[language][0]
        reason = why_not(kernel) or missing_modules(notebook)
        if reason:
            return "skip", reason
        identify(notebook)
        nbformat.validate(notebook)
        client = NotebookClient(
            notebook,
            kernel_name=kernel,
            timeout=timeout,
            startup_timeout=180,
            record_timing=False,
            resources={"metadata": {"path": str(path.parent)}},
        )
        client.execute()
        # A kernel that died and was replaced reports an error that a raises-exception tag must not hide.
        for cell in notebook.cells:
            for output in cell.get("outputs", []):
                if output.output_type == "error" and output.ename == "KernelDied":
                    return "fail", output.evalue
        tidy(notebook, language)
        nbformat.validate(notebook)
        if not check:
            store(path, notebook)
    except CellExecutionError as error:
        return "fail", re.sub("\x1b\\[[0-9;]*m", "", str(error))
    except (CellTimeoutError, DeadKernelError, RuntimeError, ValueError, OSError, nbformat.ValidationError) as error:
        return "fail", "%s: %s" % (type(error).__name__, error)
    return "ok", ""


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="store nothing, look for errors only")
    parser.add_argument("--tap", action="store_true", help="report in the Test Anything Protocol")
    parser.add_argument("--timeout", type=int, default=600, help="seconds a cell may take")
    parser.add_argument("notebook", nargs="*", type=pathlib.Path)
    arguments = parser.parse_args()

    paths = [path.resolve() for path in arguments.notebook] or sorted((ROOT / "notebooks").glob("*.ipynb"))
    if not paths:
        sys.exit("notebooks: none in notebooks/")
    os.environ.setdefault("SOURCE_DATE_EPOCH", "0")  # dates inside figures
    counts = {"ok": 0, "skip": 0, "fail": 0}
    if arguments.tap:
        print("1..%d" % len(paths))
    for number, path in enumerate(paths, 1):
        state, message = execute(path, arguments.check, arguments.timeout)
        counts[state] += 1
        if arguments.tap:
            for line in message.splitlines() if state == "fail" else []:
                print("# " + line)
            ok = "not ok" if state == "fail" else "ok"
            print("%s %d - %s%s" % (ok, number, path.stem, " # SKIP " + message if state == "skip" else ""))
        else:
            print("%-4s  %s%s" % (state, path.name, ": " + message if message else ""))
        sys.stdout.flush()
    if counts["fail"]:
        sys.exit(1)
    if not counts["ok"] and not arguments.tap:
        sys.exit(77)


if __name__ == "__main__":
    main()
