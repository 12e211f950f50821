# SPDX-License-Identifier: Apache-2.0
"""What bench/counts and bench/run share: the server of a measurement, one run of a program, and what a row of runs says."""
import json
import os
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))


class Failed(Exception):
    pass


class Node:
    """cqlring-node in a process of its own, on a free port of 127.0.0.1; as a context."""

    def __init__(self, build, *options, cpu=None):
        self.program = os.path.join(build, "tests", "node", "cqlring-node")
        self.options = options
        self.cpu = cpu
        self.host, self.port = "127.0.0.1", 0

    def __enter__(self):
        def settle():
            if self.cpu is not None:
                os.sched_setaffinity(0, {self.cpu})

        self.process = subprocess.Popen(
            [self.program, "--port", "0", "--parent-death", *self.options],
            stdout=subprocess.PIPE, text=True, preexec_fn=settle)
        line = self.process.stdout.readline().split()
        if len(line) < 2 or line[0] != "listening":
            self.__exit__()
            raise Failed(f"{self.program} did not say where it listens")
        self.port = int(line[1].rsplit(":", 1)[1])
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()
        self.process.stdout.close()


class Cassandra:
    """A real server, started by tests/live/cassandra; as a context."""

    def __init__(self, heap=2048):
        self.script = os.path.join(HERE, "..", "tests", "live", "cassandra")
        self.heap = heap

    def __enter__(self):
        self.directory = tempfile.mkdtemp(prefix="cqlring-bench.")
        done = subprocess.run(
            [self.script, "start", "--port", "0", "--fast-schema", "--heap", str(self.heap), "--dir", os.path.join(self.directory, "node")],
            stdout=subprocess.PIPE, text=True)
        if done.returncode != 0:
            self.__exit__()
            raise Failed("Cassandra did not start")
        at = json.loads(done.stdout.strip().splitlines()[-1])
        self.host, self.port = at["host"], at["port"]
        return self

    def __exit__(self, *_):
        subprocess.run([self.script, "stop", "--dir", os.path.join(self.directory, "node")],
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        shutil.rmtree(self.directory, ignore_errors=True)


class Running:
    """A server that somebody else has started."""

    def __init__(self, host, port):
        self.host, self.port = host, port

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


def run(command, timeout=300):
    """Runs a program whose last line of output that begins with { is its result. The shell forks before it executes, so
    that the program's peak of memory does not begin with ours."""
    try:
        done = subprocess.run(["/bin/sh", "-c", '"$@"; exit $?', "sh", *map(str, command)], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, timeout=timeout)
    except subprocess.TimeoutExpired:
        raise Failed(f"{command[0]} took more than {timeout} s") from None
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode != 0 or not lines:
        raise Failed(f"{' '.join(map(str, command))}: exit status {done.returncode}: {done.stderr.strip()[-300:]}")
    return json.loads(lines[-1])


def on(server, **options):
    """Command line options for a program of ours."""
    words = ["--host", server.host, "--port", server.port]
    for name, value in options.items():
        words += ["--" + name.replace("_", "-"), value]
    return words


def instructions(program, server, each, scratch, **options):
    """User instructions per row, all threads together: the difference of two run lengths under callgrind."""
    counted = []
    for rows in each:
        command = ["valgrind", "--tool=callgrind", "--callgrind-out-file=" + os.path.join(scratch, "callgrind"),
                   "--log-file=" + os.path.join(scratch, "log"), program, *map(str, on(server, rows=rows, **options))]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        with open(os.path.join(scratch, "log")) as log:
            total = re.search(r"Collected\s*:\s*([\d,]+)", log.read())
        if done.returncode != 0 or total is None:
            raise Failed(f"callgrind: exit status {done.returncode}: {done.stderr[-300:]}")
        counted.append((rows, int(total.group(1).replace(",", ""))))
    (short, few), (long, many) = counted
    return (many - few) / (long - short)


def calls(program, server, each, scratch, **options):
    """System calls per row, by name: the difference of two run lengths under strace."""
    counted = []
    for rows in each:
        table = os.path.join(scratch, "strace")
        run(["strace", "-f", "-c", "-o", table, program, *on(server, rows=rows, **options)])
        names = {}
        with open(table) as lines:
            for line in lines:  # % time, seconds, usecs/call, calls, (errors,) name
                words = line.split()
                if len(words) >= 5 and words[3].isdigit() and words[-1] != "total":
                    names[words[-1]] = int(words[3])
        counted.append(names)
    few, many = counted
    return {name: (many[name] - few.get(name, 0)) / (each[1] - each[0]) for name in many}


def per_request(result):
    """The figures of a line of bench/steady, divided by its rows, with the names that the tables use."""
    rows = result["rows"]
    figures = {
        "cpu_us": (result["user_s"] + result["system_s"]) * 1e6 / rows,
        "rows_per_s": rows / result["seconds"],
        "requests_per_send": result["requests_issued"] / max(result["sends"], 1),
        "requests_per_recv": result["replies"] / max(result["recvs"], 1),
        "wakes": (result["wakes_submitter"] + result["wakes_reactor"] + result["wakes_waiter"]) / rows,
        "switches": result["context_switches"] / rows,
        "mallocs": result.get("heap_calls", result["allocations"]) / rows,
        "copied_up": result["copied_up_bytes"] / rows,
        "copied_down": result["copied_down_bytes"] / rows,
        "max_rss_mb": result["memory_max_kb"] / 1024,
    }
    return figures


def interval(values, repeats=4000, seed=1):
    """The median of values, and the bootstrap's 95 % interval of it."""
    chance = random.Random(seed)
    medians = sorted(statistics.median(chance.choices(values, k=len(values))) for _ in range(repeats))
    return statistics.median(values), medians[int(repeats * 0.025)], medians[int(repeats * 0.975)]


def load():
    return f"{os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}"


def complain(text):
    print(text, file=sys.stderr, flush=True)
