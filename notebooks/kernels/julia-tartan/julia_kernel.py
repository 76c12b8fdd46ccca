# SPDX-License-Identifier: Apache-2.0
"""A Jupyter kernel that runs Julia code in one `julia` process; needs ipykernel, and no Julia package.

The environment variable JULIA names the program (default: julia). Two pipes join this process and worker.jl; both carry
frames: one line "<tag> <bytes>", then that many bytes.
"""

import base64
import codecs
import os
import signal
import subprocess

from ipykernel.kernelapp import IPKernelApp
from ipykernel.kernelbase import Kernel

WORKER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "worker.jl")


class Worker:
    """The julia process and its frames."""

    def __init__(self):
        request_read, request_write = os.pipe()
        reply_read, reply_write = os.pipe()
        command = [os.environ.get("JULIA") or "julia", "--startup-file=no", "--color=no", WORKER]
        try:
            self.process = subprocess.Popen(
                command + [str(request_read), str(reply_write)],
                stdin=subprocess.DEVNULL,
                pass_fds=(request_read, reply_write),
            )
        finally:
            # Only julia holds these ends, so that its death is an end of file here.
            os.close(request_read)
            os.close(reply_write)
        self.requests = os.fdopen(request_write, "wb")
        self.replies = os.fdopen(reply_read, "rb")

    def send(self, tag, payload):
        self.requests.write(b"%s %d\n" % (tag.encode(), len(payload)) + payload)
        self.requests.flush()

    def receive(self):
        """(tag, payload), or None when julia is gone."""
        header = self.replies.readline()
        if not header.endswith(b"\n"):
            return None
        tag, size = header.decode().split()
        payload = self.replies.read(int(size))
        return (tag, payload) if len(payload) == int(size) else None

    def stop(self):
        try:
            self.requests.close()
            self.process.wait(timeout=5)
        except (OSError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()


class JuliaKernel(Kernel):
    implementation = "julia-tartan"
    implementation_version = "1"
    banner = "Julia in a process of its own"
    language_info = {"name": "julia", "mimetype": "text/x-julia", "file_extension": ".jl"}

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.worker = None

    def do_execute(self, code, silent, store_history=True, user_expressions=None, allow_stdin=False, **unused):
        # An interrupt is julia's to handle: it gets the signal too, and reports an InterruptException.
        previous = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            return self._execute(code, silent)
        except OSError as error:
            return self._fail("KernelDied", "cannot talk to julia: %s" % error, [])
        finally:
            signal.signal(signal.SIGINT, previous)

    def _execute(self, code, silent):
        if self.worker is None:
            self.worker = Worker()
        self.worker.send("run", b"%d\n" % self.execution_count + code.encode())
        decoders = {name: codecs.getincrementaldecoder("utf-8")("replace") for name in ("stdout", "stderr")}
        reply = {"status": "ok", "execution_count": self.execution_count, "payload": [], "user_expressions": {}}
        bundle = {}
        while True:
            frame = self.worker.receive()
            if frame is None:
                self.worker.stop()
                code, self.worker = self.worker.process.returncode, None
                return self._fail("KernelDied", "julia ended with status %s; the next cell starts a new one" % code, [])
            tag, payload = frame
            if tag == "done":
                return reply
            if tag in decoders:
                self._publish(silent, "stream", {"name": tag, "text": decoders[tag].decode(payload)})
            elif tag.startswith("mime:"):
                mime = tag[len("mime:"):]
                binary = mime.startswith("image/") and mime != "image/svg+xml"
                bundle[mime] = base64.b64encode(payload).decode() if binary else payload.decode("utf-8", "replace")
            elif tag == "display":
                self._publish(silent, "display_data", {"data": bundle, "metadata": {}})
                bundle = {}
            elif tag == "result":
                content = {"data": bundle, "metadata": {}, "execution_count": self.execution_count}
                self._publish(silent, "execute_result", content)
                bundle = {}
            elif tag == "error":
                name, message, trace = payload.decode("utf-8", "replace").split("\0", 2)
                reply = self._fail(name, message, trace.split("\n"), silent)

    def _publish(self, silent, kind, content):
        if not silent:
            self.send_response(self.iopub_socket, kind, content)

    def _fail(self, name, message, trace, silent=False):
        content = {"ename": name, "evalue": message, "traceback": trace or [message]}
        self._publish(silent, "error", content)
        return dict(content, status="error", execution_count=self.execution_count)

    def do_shutdown(self, restart):
        if self.worker is not None:
            self.worker.stop()
            self.worker = None
        return {"status": "ok", "restart": restart}


if __name__ == "__main__":
    IPKernelApp.launch_instance(kernel_class=JuliaKernel)
