#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""prometheus.py URL: runs each query of the dashboard, and asks for each rule, at a Prometheus that
has scraped vramprof. Exits with 1 if one has no result."""
import json
import re
import sys
import time
import urllib.error
import urllib.parse
import urllib.request

SUBSTITUTES = {"$__rate_interval": "10s", "$__range": "60s", "$__interval": "2s"}
failed = []


def ask(path, **parameters):
    url = sys.argv[1] + "/api/v1/" + path + "?" + urllib.parse.urlencode(parameters, doseq=True)
    try:
        with urllib.request.urlopen(url, timeout=30) as answer:
            return json.load(answer)["data"]
    except urllib.error.HTTPError as e:
        return {"error": e.read().decode()}


def concrete(expr, variables):
    for name, value in SUBSTITUTES.items():
        expr = expr.replace(name, value)
    for name in variables:
        expr = re.sub(r"\$\{?%s\b\}?" % name, ".*", expr)
    return expr


def values(data):
    """The numbers of a result, of a moment or of a range."""
    for series in data.get("result", []):
        for _, value in series.get("values") or [series["value"]]:
            if value != "NaN":
                yield float(value)


def check(what, ok, detail=""):
    if not ok:
        failed.append(what)
        print("FAIL ", what, str(detail)[:500])


def query(expr):
    return ask("query", query=expr)


def check_dashboard():
    with open("packaging/grafana/vramprof.json") as f:
        board = json.load(f)
    variables = [v["name"] for v in board["templating"]["list"]]
    count, now = 0, time.time()
    for v in board["templating"]["list"]:
        if v["type"] != "query":
            continue
        metric, label = re.fullmatch(r"label_values\((.*), (\w+)\)", v["query"]["query"]).groups()
        found = ask("label/%s/values" % label, **{"match[]": concrete(metric, variables)})
        check("variable " + v["name"], isinstance(found, list) and found, found)
    for panel in board["panels"]:
        for target in panel.get("targets", []):
            expr = concrete(target["expr"], variables)
            if target["instant"]:
                data = query(expr)
            else:
                data = ask("query_range", query=expr, start=now - 30, end=now, step=2)
            count += 1
            check(panel["title"] + ": " + expr, list(values(data)), data)
    for note in board["annotations"]["list"]:
        check("annotation " + note["name"], list(values(query(concrete(note["expr"], variables)))))
    return count


def check_rules():
    count, states = 0, {}
    for group in ask("rules")["groups"]:
        for rule in group["rules"]:
            count += 1
            check("rule " + rule["name"], rule["health"] == "ok", rule.get("lastError"))
            if rule["type"] == "alerting":
                states[rule["name"]] = max(states.get(rule["name"], ""), rule["state"], key=["", "inactive", "pending", "firing"].index)
            elif not rule["name"].endswith(":trend"):  # needs half an hour
                check("record " + rule["name"], list(values(query(rule["name"]))))
    for name, wanted in {"VramprofLineLeaks": "pending", "VramprofGPUFullWithinAnHour": "pending", "VramprofOutOfMemory": "firing", "VramprofDown": "inactive", "VramprofLosesEvents": "inactive", "VramprofNVMLStale": "inactive"}.items():
        check("alert " + name, states.get(name) == wanted, states.get(name))
    return count


def check_figures():
    def one(expr):
        return next(iter(values(query(expr))), None)

    apart = one("max(abs(sum by (UUID) (vramprof_memory_bytes) + on (UUID) vramprof_gpu_memory_untraced_bytes - on (UUID) vramprof_gpu_memory_used_bytes))")
    check("planes and what is not traced add up to what the GPU uses", apart == 0, apart)
    check("one line leaks", one('sum(vramprof_verdict_lines{verdict="leaking",pod="train-0"})') == 1, query('vramprof_verdict_lines'))
    rate = one('sum(vramprof_growth_bytes_per_second{verdict="leaking",pod="train-0"})')
    check("it grows by what the program keeps, at most 20 MiB/s", rate and 5e6 < rate < 22e6, rate)
    check("one out-of-memory error", one('sum(vramprof_out_of_memory_total{namespace="ml",pod="big-0"})') == 1, query("vramprof_out_of_memory_total"))
    for plane in ("tensor", "cache"):
        check("the job has plane " + plane, (one('sum(vramprof_memory_bytes{hpc_job="4242",plane="%s"})' % plane) or 0) > 0, query('vramprof_memory_bytes{hpc_job!=""}'))
    print("scrape: %.0f ms, %d samples" % (1000 * one("max_over_time(scrape_duration_seconds[30s])"), one("scrape_samples_scraped")))


queries, rules = check_dashboard(), check_rules()
check_figures()
print("%d queries of the dashboard and %d rules, %d without a right result" % (queries, rules, len(failed)))
sys.exit(1 if failed else 0)
