#!/usr/bin/env python3
"""Measures the dashboard of a running server: `measure.py http://127.0.0.1:7117 PID-OF-SERVER fencehold`, after `../lists/fill.sql`.
See docs/benchmarks/dashboard.md.

The last argument is the program whose `bench lease` puts load on the server."""

import http.client
import json
import os
import re
import socket
import statistics
import subprocess
import sys
import threading
import time
import urllib.parse
import urllib.request

LEASES = 100_000
RUNS = 7
PAIRS = 5
OPEN_PAGES = 50
# Where the load is.
NAMESPACE = "load"
OVERVIEW = f"/?namespace={NAMESPACE}"
QUIET_SECONDS = 20
PAGES = ["/", "/leases", "/leases?prefix=many%2F9", "/queues", "/jobs", "/jobs?state=queued", "/jobs?state=failed", "/jobs?queue=small",
         "/jobs?label=tenant%3Dt3", "/workers", "/schedules", "/effects", "/audit", "/access-tokens"]


class Server:
    def __init__(self, url, pid):
        self.url, self.pid = url, pid
        self.address = urllib.parse.urlsplit(url).netloc

    def connect(self):
        return http.client.HTTPConnection(self.address, timeout=120)

    def cpu_seconds(self):
        fields = open(f"/proc/{self.pid}/stat").read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def fill_leases(server):
    """Leases that last for a day. One whose outcome is not known is asked for again, under the same hold id."""
    wanted = list(range(LEASES))
    while wanted:
        some, wanted = wanted[-256:], wanted[:-256]
        operations = [{"type": "acquire_lease", "request": {"key": f"many/{n}", "hold_id": f"{n:032x}", "owner": f"owner-{n % 100}", "ttl_ms": 86_400_000}} for n in some]
        request = urllib.request.Request(server.url + "/v1/batch", json.dumps({"operations": operations}).encode(), {"content-type": "application/json"})
        results = json.loads(urllib.request.urlopen(request, timeout=120).read())["results"]
        for n, result in zip(some, results):
            if "error" in result:
                assert result["error"]["type"] == "urn:fencehold:outcome-unknown", result
                wanted.append(n)


def get(connection, path):
    connection.request("GET", path, headers={"accept": "text/html"})
    response = connection.getresponse()
    body = response.read()
    assert response.status == 200, f"{path}: {response.status}"
    return body


def first_link(connection, page, kind):
    return "/" + re.search(rf'href="({kind}\?[^"]+)"', get(connection, page).decode()).group(1).replace("&amp;", "&")


def time_pages(server):
    connection = server.connect()
    some_job, some_lease = (first_link(connection, page, kind) for page, kind in (("/jobs", "job"), ("/leases", "lease")))
    print("| page | ms | ms of the server's CPU | kB |\n|---|---|---|---|")
    for path in PAGES + [some_job, some_lease]:
        get(connection, path)
        times = []
        before = server.cpu_seconds()
        for _ in range(RUNS):
            began = time.monotonic()
            body = get(connection, path)
            times.append((time.monotonic() - began) * 1000)
        cpu_ms = (server.cpu_seconds() - before) * 1000 / RUNS
        print(f"| `{path.split('?')[0] if path in (some_job, some_lease) else path}` | {statistics.median(times):.1f} | {cpu_ms:.1f} | {len(body) / 1000:.0f} |", flush=True)


class OpenPage(threading.Thread):
    """What a browser does with an open overview: it follows the stream, and asks for the page again after a change."""

    def __init__(self, server):
        super().__init__(daemon=True)
        self.server, self.is_open, self.reloads, self.failures = server, True, 0, 0
        page = get(server.connect(), OVERVIEW).decode()
        self.live = "/" + re.search(r'data-live="([^"]+)"', page).group(1).lstrip("/").replace("&amp;", "&")
        self.pause = int(re.search(r'data-refresh-ms="(\d+)"', page).group(1)) / 1000
        self.stream = server.connect()
        self.stream.request("GET", self.live, headers={"accept": "text/event-stream"})
        self.socket = self.stream.sock
        self.events = self.stream.getresponse()
        self.pages = server.connect()
        self.start()

    def run(self):
        last = 0.0
        try:
            while self.is_open:
                line = self.events.readline()
                # A browser that comes late for some changes asks once for all of them.
                if line.startswith(b"event: changed") and time.monotonic() - last > self.pause:
                    last = time.monotonic()
                    self.pages.request("GET", OVERVIEW, headers={"accept": "text/html", "fencehold-again": "1"})
                    response = self.pages.getresponse()
                    response.read()
                    self.reloads += 1
                    self.failures += response.status != 200
        except (OSError, ValueError, AttributeError, http.client.HTTPException):
            assert not self.is_open

    def close(self):
        self.is_open = False
        # It wakes the thread, which may be waiting for a line.
        self.socket.shutdown(socket.SHUT_RDWR)
        self.join()


def cpu_share(server):
    before = server.cpu_seconds()
    time.sleep(QUIET_SECONDS)
    return (server.cpu_seconds() - before) / QUIET_SECONDS


def grants(server, program):
    command = [program, "--store", server.url, "--namespace", NAMESPACE, "bench", "lease", "--duration", "5s", "-o", "json"]
    said = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return next(operation["per_second"] for operation in said["operations"] if operation["name"] == "acquire")


def main():
    server, program = Server(sys.argv[1], int(sys.argv[2])), sys.argv[3]
    # The last that is made.
    if b"many/0" not in get(server.connect(), "/leases?prefix=many%2F0"):
        fill_leases(server)
    time_pages(server)
    without = cpu_share(server)
    pages = [OpenPage(server) for _ in range(OPEN_PAGES)]
    with_pages = cpu_share(server)
    for page in pages:
        page.close()
    print(f"\nNothing happens: {without * 100:.2f} % of a core without a page, {with_pages * 100:.2f} % with {OPEN_PAGES} open.", flush=True)
    ratios, reloads, failures = [], 0, 0
    for _ in range(PAIRS):
        alone = grants(server, program)
        pages = [OpenPage(server) for _ in range(OPEN_PAGES)]
        watched = grants(server, program)
        reloads += sum(page.reloads for page in pages)
        failures += sum(page.failures for page in pages)
        for page in pages:
            page.close()
        ratios.append(watched / alone)
        print(f"{alone:.0f} grants a second without a page, {watched:.0f} with {OPEN_PAGES}: {watched / alone:.3f}", flush=True)
    print(f"\nUnder load: {statistics.median(ratios):.3f} of the grants (median of {PAIRS} pairs); the pages asked {reloads} times for themselves, {failures} times in vain.")


main()
