#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""gotest.py FILE: reads `go test -json`, prints each package's closing line and the output of
failed tests, and appends a line "pass", "fail TEST: ERRORS" or "skip TEST: REASON" to FILE for each
test, and "PACKAGE TEST PATTERN" to FILE.failed for each failed one that is no subtest. The pattern, for
go test -run, matches only its failed subtests where it has some."""
import json
import re
import sys
from collections import defaultdict

output = defaultdict(list)  # (package, test or ""): lines
failed = set()  # packages with a failed test
subtests = defaultdict(list)  # (package, test): its failed subtests


def errors(lines):
    """The first four messages of a failed test, a line each: runners may show only the end of the output."""
    said = [l.strip()[:300] for l in lines if re.match(r"\s+\w+_test\.go:\d+: |panic: |\s+(FAIL: )?\S+\.txt(ar)?:\d+: ", l)]
    return " | ".join(said[:4])


with open(sys.argv[1], "a", encoding="utf-8") as results:
    for line in sys.stdin:
        try:
            event = json.loads(line)
        except ValueError:
            print(line, end="", flush=True)  # not JSON: an error of the go command
            continue
        action, package, test = event["Action"], event.get("Package", event.get("ImportPath", "")), event.get("Test", "")
        if action in ("output", "build-output"):
            output[package, test].append(event["Output"])
        elif test and action in ("pass", "fail", "skip"):
            lines = output.pop((package, test), [])
            reason = ""
            if action == "fail":
                failed.add(package)
                print(*lines, sep="", end="", flush=True)
                reason = f" {test}: {errors(lines)}"
                top, _, rest = test.partition("/")
                if rest:
                    subtests[package, top].append(re.escape(rest.partition("/")[0]))
                else:
                    pattern = f"^{top}$"
                    if names := subtests[package, top]:
                        pattern += f"/^({'|'.join(sorted(set(names)))})$"
                    with open(sys.argv[1] + ".failed", "a", encoding="utf-8") as names:
                        names.write(f"{package} {top} {pattern}\n")
            elif action == "skip":
                reason = f" {test}: " + " ".join(l.strip() for l in lines if not l.lstrip().startswith(("===", "---")))
            results.write(action + reason + "\n")
        elif action in ("pass", "fail", "build-fail"):  # after a failed build comes its package
            lines = output.pop((package, ""), [])
            if action == "pass":
                lines = lines[-1:]  # "ok  	package	0.1s"
            elif action == "fail" and package not in failed:  # it did not build, or ended without a failed test
                results.write("fail\n")
                failed.add(package)
            print(*lines, sep="", end="", flush=True)
