// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"
)

// The parts of SARIF 2.1.0 that a gate needs.
type (
	sarifLog struct {
		Schema  string     `json:"$schema"`
		Version string     `json:"version"`
		Runs    []sarifRun `json:"runs"`
	}
	sarifRun struct {
		Tool        sarifTool         `json:"tool"`
		ColumnKind  string            `json:"columnKind"`
		Invocations []sarifInvocation `json:"invocations"`
		Results     []sarifResult     `json:"results"`
	}
	sarifTool struct {
		Driver sarifDriver `json:"driver"`
	}
	sarifDriver struct {
		Name    string      `json:"name"`
		Version string      `json:"semanticVersion,omitempty"` // of releases: other builds have none
		Rules   []sarifRule `json:"rules"`
	}
	sarifRule struct {
		ID    string    `json:"id"`
		Short sarifText `json:"shortDescription"`
	}
	sarifText struct {
		Text string `json:"text"`
	}
	sarifInvocation struct {
		Successful    bool                `json:"executionSuccessful"`
		Notifications []sarifNotification `json:"toolExecutionNotifications,omitempty"`
	}
	sarifNotification struct {
		Level   string    `json:"level"`
		Message sarifText `json:"message"`
	}
	sarifResult struct {
		Rule         string            `json:"ruleId"`
		Level        string            `json:"level"`
		Message      sarifText         `json:"message"`
		Locations    []sarifLocation   `json:"locations"`
		Fingerprints map[string]string `json:"partialFingerprints"`
	}
	sarifLocation struct {
		Physical sarifPhysical `json:"physicalLocation"`
	}
	sarifPhysical struct {
		Artifact sarifArtifact `json:"artifactLocation"`
		Region   *sarifRegion  `json:"region,omitempty"`
	}
	sarifArtifact struct {
		URI string `json:"uri"`
	}
	sarifRegion struct {
		Start   int        `json:"startLine"`
		Snippet *sarifText `json:"snippet,omitempty"`
	}
)

var sarifRules = []sarifRule{
	{"budget", sarifText{"GPU memory at the peak exceeds the budget"}},
	{"peak", sarifText{"GPU memory at the peak exceeds that of the baseline"}},
	{"line", sarifText{"A line of code holds more GPU memory at the peak than in the baseline"}},
}

// semVer matches what SARIF calls a semantic version: 1.0.0-rc1.
var semVer = regexp.MustCompile(`^\d+\.\d+\.\d+([-+][0-9A-Za-z.+-]+)?$`)

// WriteSARIF writes what failed: the budget and the peak, at the line that grew or holds most, and
// each line that grew. Code scanning refuses a whole file for one result without a location: a
// failure that no file of the sources can be named for becomes a notification.
func (r *Result) WriteSARIF(w io.Writer) error {
	run := sarifRun{
		Tool:       sarifTool{sarifDriver{Name: "vramprof", Rules: sarifRules}},
		ColumnKind: "utf16CodeUnits", Results: []sarifResult{},
	}
	if _, version, ok := strings.Cut(r.Tool, " "); ok {
		if number := strings.TrimPrefix(version, "v"); semVer.MatchString(number) {
			run.Tool.Driver.Version = number
		}
	}
	x := sarifInvocation{Successful: r.Verdict != Unknown}
	notify := func(level, text string) {
		x.Notifications = append(x.Notifications, sarifNotification{level, sarifText{text}})
	}
	for _, why := range r.Why {
		notify("error", why)
	}
	if r.Unsure {
		notify("error", r.budgetText())
	}
	fallback := r.fallback()
	add := func(rule, level, text string, at *sarifLocation, of ...string) {
		if at = cmp.Or(at, fallback); at == nil {
			notify(level, text)
			return
		}
		run.Results = append(run.Results, sarifResult{rule, level, sarifText{text}, []sarifLocation{*at}, map[string]string{"vramprof/v1": fingerprint(of...)}})
	}
	for _, c := range r.checks() {
		if c.failed {
			add(c.id, "error", c.id+": "+c.text, nil, c.id)
		}
	}
	for i := range r.Lines[:min(r.Grew, mostCases)] {
		c := &r.Lines[i]
		level, name, at := "warning", c.Function, locationOf(&c.Line) // it does not fail the gate by itself
		if r.EachLine || r.OverPeak {
			level = "error"
		}
		if at == nil {
			name = c.place() // the location shows another
		}
		add("line", level, name+" holds more GPU memory at the peak: "+c.growthText(), at, c.Function, c.Text)
	}
	run.Invocations = []sarifInvocation{x}
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", " ")
	return e.Encode(sarifLog{"https://json.schemastore.org/sarif-2.1.0.json", "2.1.0", []sarifRun{run}})
}

// fallback returns where a failure without a place in the sources is shown: at their line that grew
// most, or else that holds most, or else at the command's script.
func (r *Result) fallback() *sarifLocation {
	for i := range r.Lines[:r.Grew] {
		if at := locationOf(&r.Lines[i].Line); at != nil {
			return at
		}
	}
	if r.Now != nil {
		for i := range r.Now.Lines {
			if at := locationOf(&r.Now.Lines[i]); at != nil {
				return at
			}
		}
	}
	return locationOf(&Line{File: r.Script})
}

// locationOf returns where a line is; nil for memory without one, and for a library's file.
func locationOf(l *Line) *sarifLocation {
	if l.Mark || !filepath.IsLocal(l.File) || strings.HasPrefix(l.File, "<") {
		return nil
	}
	p := sarifPhysical{Artifact: sarifArtifact{(&url.URL{Path: filepath.ToSlash(l.File)}).EscapedPath()}}
	if l.Line > 0 {
		p.Region = &sarifRegion{Start: l.Line}
		if l.Text != "" {
			p.Region.Snippet = &sarifText{l.Text}
		}
	}
	return &sarifLocation{p}
}

// fingerprint returns what identifies a result across versions: not its line number.
func fingerprint(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:16])
}
