#!/usr/bin/env python3
"""Two versions of the benchmarks in turns: `measure.py [--pairs 9] BEFORE AFTER`, two commands that print the JSON of a benchmark.

For each line: the median of both, and the median and the extremes of the ratios AFTER / BEFORE, one for each pair. Above 1 is better:
a rate counts as it is; a latency, a time and a size count inverted. A machine changes from minute to minute, so only what ran one
after the other is compared, and which one of a pair comes first alternates."""

import argparse
import json
import re
import shlex
import statistics
import subprocess
import sys


def lines(command):
    """What was measured, by line: (figure, whether more is better)."""
    run = subprocess.run(shlex.split(command), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if run.returncode:
        sys.exit(f"{command}: {run.stderr}")
    measured = {}
    for line in json.loads(run.stdout):
        what = re.sub(r" \([0-9]+ samples\)", "", line["what"]) + (f", {line['clients']} clients" if line["clients"] else "")
        if line["per_second"]:
            measured[what] = (line["per_second"], True)
        elif line["p50_us"]:
            measured[what] = (line["p50_us"], False)
        elif found := re.fullmatch(r"(.*): (-?[0-9.]+) (.*)", line["what"]):
            measured[f"{found[1]}, in {found[3]}"] = (float(found[2]), False)
        if line["per_second"] and line["p50_us"]:
            measured[f"{what}: p50 in µs"] = (line["p50_us"], False)
    return measured


def short(number):
    return f"{number:.0f}" if number >= 100 else f"{number:.3g}"


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--pairs", type=int, default=9)
    arguments.add_argument("before")
    arguments.add_argument("after")
    arguments = arguments.parse_args()
    pairs = []
    for nth in range(arguments.pairs):
        commands = [arguments.before, arguments.after]
        order = [0, 1] if nth % 2 == 0 else [1, 0]
        measured = {which: lines(commands[which]) for which in order}
        pairs.append((measured[0], measured[1]))
        print(f"pair {nth + 1} of {arguments.pairs} is measured", file=sys.stderr)
    print("| what | before | after | ratio | lowest to highest |\n|---|---|---|---|---|")
    for what in dict.fromkeys(name for pair in pairs for one in pair for name in one):
        both = [(before[what], after[what]) for before, after in pairs if what in before and what in after]
        if not both:
            only = "before" if any(what in before for before, _ in pairs) else "after"
            print(f"| {what} | only {only} | | | |")
            continue
        ratios = [a[0] / b[0] if b[1] else b[0] / a[0] for b, a in both if a[0] and b[0]] or [float("nan")]
        before, after = (statistics.median(one[which][0] for one in both) for which in (0, 1))
        print(f"| {what} | {short(before)} | {short(after)} | {statistics.median(ratios):.2f} | {min(ratios):.2f} to {max(ratios):.2f} |")


main()
