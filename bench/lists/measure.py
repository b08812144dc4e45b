#!/usr/bin/env python3
"""Times the first page of lists, and counts: `measure.py DATABASE_URL [schema]`, after `fill.sql`. See docs/benchmarks/lists.md.

A page is asked for as the library does it: one request after the other, until there are a hundred jobs or nothing is beyond."""

import re
import statistics
import subprocess
import sys
import time

RUNS = 7
LISTS = [
    ("all", "NULL, NULL, NULL, '[]', NULL, NULL"),
    ("--state queued", "NULL, NULL, '{0}', '[]', NULL, NULL"),
    ("--state running", "NULL, NULL, '{2}', '[]', NULL, NULL"),
    ("--state completed", "NULL, NULL, '{3}', '[]', NULL, NULL"),
    ("--state failed", "NULL, NULL, '{4}', '[]', NULL, NULL"),
    ("--state in_doubt (none)", "NULL, NULL, '{7}', '[]', NULL, NULL"),
    ("--queue small", "'small', NULL, NULL, '[]', NULL, NULL"),
    ("--queue big --state queued", "'big', NULL, '{0}', '[]', NULL, NULL"),
    ("--kind rare", "NULL, 'rare', NULL, '[]', NULL, NULL"),
    ("--kind rare --state queued", "NULL, 'rare', '{0}', '[]', NULL, NULL"),
    ("--kind common --state failed", "NULL, 'common', '{4}', '[]', NULL, NULL"),
    ("--label tenant=t3", """NULL, NULL, NULL, '[["tenant","t3"]]', NULL, NULL"""),
    ("--owner worker-1", "NULL, NULL, NULL, '[]', 'worker-1', NULL"),
    ("--contains none, one request", "NULL, NULL, NULL, '[]', NULL, 'nothing-such'"),
    ("--contains none --state queued, one request", "NULL, NULL, '{0}', '[]', NULL, 'nothing-such'"),
]
COUNTS = [("queue ls", "SELECT count(*) FROM job_queues('default', NULL)"), ("jobs not done", "SELECT job_live()")]


class Session:
    def __init__(self, url, schema):
        self.psql = subprocess.Popen(["psql", "-qAt", "-d", url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.value(f"SET search_path = {schema}, pg_temp; SET log_statement_stats = on; SET client_min_messages = log; SELECT 1")
        self.cpu_ms = 0

    def value(self, sql):
        """The last row of a statement; `cpu_ms` has what the server took."""
        self.psql.stdin.write(sql + ";\n\\echo end\n")
        self.psql.stdin.flush()
        lines = list(iter(self.psql.stdout.readline, "end\n"))
        used = [float(u) + float(s) for u, s in re.findall(r"([0-9.]+) s user, ([0-9.]+) s system, [0-9.]+ s elapsed", "".join(lines))]
        self.cpu_ms = sum(used) * 1000
        rows = [line.strip() for line in lines if re.match(r"[0-9|]*$", line)]
        return rows[-1] if rows else "".join(lines)

    def timed(self, sql):
        began = time.monotonic()
        value = self.value(sql)
        return value, (time.monotonic() - began) * 1000, self.cpu_ms


def first_page(session, conditions, once):
    found, start, wall, cpu, requests = 0, 0, 0.0, 0.0, 0
    while start is not None and found < 100:
        sql = f"SELECT count(id), max(arrival) FILTER (WHERE id IS NULL) FROM job_list('default', {start}, {conditions}, {101 - found}, 10000)"
        value, one_wall, one_cpu = session.timed(sql)
        count, last = value.split("|")
        found, start = found + int(count), int(last) + 1 if last else None
        wall, cpu, requests = wall + one_wall, cpu + one_cpu, requests + 1
        if once:
            break
    return wall, cpu, requests


def main():
    session = Session(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "fencehold")
    print("| list | ms | ms of CPU | requests |\n|---|---|---|---|")
    for name, conditions in LISTS:
        runs = [first_page(session, conditions, "one request" in name) for _ in range(RUNS)]
        wall, cpu, requests = (statistics.median(of) for of in zip(*runs))
        print(f"| `{name}` | {wall:.1f} | {cpu:.1f} | {requests:.0f} |", flush=True)
    for name, sql in COUNTS:
        runs = [session.timed(sql)[1:] for _ in range(RUNS)]
        wall, cpu = (statistics.median(of) for of in zip(*runs))
        print(f"| `{name}` | {wall:.1f} | {cpu:.1f} | 1 |", flush=True)


main()
