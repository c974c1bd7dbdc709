// SPDX-License-Identifier: Apache-2.0

// Package manual reads the documents as pages, and writes them for a terminal.
package manual

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/xrash/smetrics"

	"github.com/vramprof/vramprof"
)

// Page is a document, or a section of one, that "vramprof help NAME" shows.
type Page struct {
	Name    string
	Subject string
	File    string // "docs/planes.md"
	Section string // heading of the section; "": the whole document
	Without string // heading of a section that is left out
}

// Pages lists the pages in the order in which help lists them. The tables of docs/README.md have
// the same subjects.
var Pages = []Page{
	{Name: "tutorial", Subject: "from a growing GPU to the line, in ten minutes", File: "docs/tutorial.md"},
	{Name: "install", Subject: "requirements, capabilities, containers, build", File: "docs/install.md"},
	{Name: "usage", Subject: "commands, flags, exit codes, files, memory ceiling", File: "docs/usage.md", Without: "Commands"},
	{Name: "views", Subject: "captures, moments, views, the HTML page", File: "docs/views.md"},
	{Name: "leaks", Subject: "verdicts, evidence, advice", File: "docs/leaks.md"},
	{Name: "ci", Subject: "a gate for GPU memory: budgets, baselines, git bisect", File: "docs/ci.md"},
	{Name: "holders", Subject: "who keeps the tensors of a running PyTorch", File: "docs/holders.md"},
	{Name: "planes", Subject: "kinds of memory, planes, PyTorch, out-of-memory records, devices", File: "docs/planes.md"},
	{Name: "oom", Subject: "records of out-of-memory errors", File: "docs/planes.md", Section: "Out-of-memory errors"},
	{Name: "names", Subject: "what the memory outside PyTorch is: NCCL, cuBLAS, llama.cpp, KV caches", File: "docs/names.md"},
	{Name: "formats", Subject: "pprof profiles and their labels, exports to other tools", File: "docs/formats.md"},
	{Name: "pprof", Subject: "sample types, labels, and commands of go tool pprof", File: "docs/formats.md", Section: "Profiles"},
	{Name: "json", Subject: "the JSON outputs and their schemas", File: "docs/json.md"},
	{Name: "mcp", Subject: "questions of assistants over the Model Context Protocol", File: "docs/mcp.md"},
	{Name: "serve", Subject: "the daemon: HTTP, limits, systemd", File: "docs/serve.md"},
	{Name: "http", Subject: "its profiles and JSON for pprof, Pyroscope and Parca; --connect", File: "docs/http.md"},
	{Name: "metrics", Subject: "for Prometheus and Grafana", File: "docs/metrics.md"},
	{Name: "archive", Subject: "the history of a machine: what happened last night", File: "docs/archive.md"},
	{Name: "kubernetes", Subject: "Helm chart, manifests, rights, names of pods", File: "docs/kubernetes.md"},
	{Name: "slurm", Subject: "reports of jobs; Ray, torchrun", File: "docs/slurm.md"},
	{Name: "capabilities", Subject: "rights of users without root", File: "docs/install.md", Section: "Capabilities"},
	{Name: "limits", Subject: "scale, faults, what it may miss", File: "docs/limits.md"},
	{Name: "why", Subject: "which questions it answers, and which tool answers the others", File: "docs/why.md"},
	{Name: "accuracy", Subject: "how right the results are, and how that is measured", File: "docs/accuracy.md"},
	{Name: "kernels", Subject: "tested kernels, kernel memory", File: "docs/kernels.md"},
	{Name: "ubuntu", Subject: "differences, AppArmor", File: "docs/ubuntu.md"},
	{Name: "pythons", Subject: "tested builds of CPython", File: "docs/pythons.md"},
	{Name: "functions", Subject: "every CUDA function that is traced", File: "docs/functions.md"},
	{Name: "how-it-works", Subject: "probes, stacks, ledger", File: "docs/how-it-works.md"},
	{Name: "security", Subject: "what attackers can and cannot do, privileges", File: "SECURITY.md"},
	{Name: "data", Subject: "what it reads, writes and reveals", File: "docs/data.md"},
	{Name: "probes", Subject: "what probes do to a process, functions that a process has overwritten", File: "docs/probes.md"},
	{Name: "bounds", Subject: "limits of what is read, shares of tables", File: "docs/bounds.md"},
	{Name: "glossary", Subject: "the words of the documents", File: "docs/glossary.md", Without: "Words to avoid"},
}

// Find returns the page of that name.
func Find(name string) (Page, bool) {
	i := slices.IndexFunc(Pages, func(p Page) bool { return p.Name == name })
	if i < 0 {
		return Page{}, false
	}
	return Pages[i], true
}

// leastAlike is the similarity, from 0 to 1, from which a name counts as mistyped.
const leastAlike = 0.75

// Nearest returns the one of names that is most like a mistyped name: "planes" for "plane". It
// returns "" if none is.
func Nearest(name string, names []string) string {
	best, nearest := leastAlike, ""
	for _, other := range names {
		if alike := smetrics.JaroWinkler(strings.ToLower(name), other, 0.7, 4); alike > best {
			best, nearest = alike, other
		}
	}
	return nearest
}

// Read parses the document or section of a page.
func (p Page) Read() (Document, error) {
	source, err := vramprof.Documents.ReadFile(p.File)
	if err != nil {
		return Document{}, err
	}
	d := parse(source, p.File)
	for _, title := range []string{p.Section, p.Without} {
		begin, end, ok := d.section(title)
		switch {
		case title == "":
		case !ok:
			return Document{}, fmt.Errorf("page %s: %s has no section %q", p.Name, p.File, title)
		case title == p.Section:
			d.Title, d.Blocks = d.Blocks[begin].Text, d.Blocks[begin+1:end]
		default:
			d.Blocks = slices.Delete(d.Blocks, begin, end)
		}
	}
	d.See = slices.DeleteFunc(d.See, func(name string) bool { return name == p.Name })
	return d, nil
}

// pageOf returns the name of the page to which a link in file leads: "../SECURITY.md#limits" in
// docs/planes.md is "security". It returns "" for all other links.
func pageOf(link, file string) string {
	target, _, _ := strings.Cut(link, "#")
	if target == "" || strings.Contains(target, "://") {
		return ""
	}
	target = path.Join(path.Dir(file), target)
	for _, p := range Pages {
		if p.File == target && p.Section == "" {
			return p.Name
		}
	}
	return ""
}
