#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""sim_table.py FOLDER: prints the answers of the bundles DRIVER-MODEL.tar.gz as one table, a row for
each question. Exit status 1: something differs."""
import glob, json, os, sys, tarfile

WORDS = {True: "agrees", False: "DIFFERS", None: "-"}


def answers(path):
    with tarfile.open(path) as bundle:
        rows = json.load(bundle.extractfile("vramprof-gpu-check/answers.json"))["answers"]
    return {r["question"]: r for r in rows}


def main(folder):
    paths = sorted(glob.glob(os.path.join(folder, "*.tar.gz")), reverse=True)
    columns = {os.path.basename(p)[:-len(".tar.gz")].replace("-", " "): answers(p) for p in paths}
    questions = list(dict.fromkeys(q for column in columns.values() for q in column if any(q in c and c[q]["agrees"] is not None for c in columns.values())))
    if not columns:
        return 0
    print("| question | " + " | ".join(columns) + " |\n|---|" + "---|" * len(columns))
    for q in questions:
        cells = ["%s: %s" % (WORDS[c[q]["agrees"]], c[q]["answer"]) if q in c and c[q]["agrees"] is False else WORDS[c[q]["agrees"]] if q in c else "not asked" for c in columns.values()]
        print("| %s | %s |" % (q, " | ".join(cells)))
    counts = [[sum(r["agrees"] is x for r in c.values()) for c in columns.values()] for x in (True, False)]
    print("| **agree, differ** | " + " | ".join("%d, %d" % pair for pair in zip(*counts)) + " |")
    return int(any(counts[1]))


sys.exit(main(sys.argv[1]))
