// SPDX-License-Identifier: Apache-2.0

package gate

import (
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
		Locations    []sarifLocation   `json:"locations,omitempty"`
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
// each line that grew.
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
	for _, why := range r.Why {
		x.Notifications = append(x.Notifications, sarifNotification{"error", sarifText{why}})
	}
	if r.Unsure {
		x.Notifications = append(x.Notifications, sarifNotification{"error", sarifText{r.budgetText()}})
	}
	run.Invocations = []sarifInvocation{x}
	for _, c := range r.checks() {
		if c.failed {
			run.Results = append(run.Results, sarifResult{c.id, "error", sarifText{c.id + ": " + c.text}, locationOf(r.mostTelling()), map[string]string{"vramprof/v1": fingerprint(c.id)}})
		}
	}
	for i := range r.Lines[:min(r.Grew, mostCases)] {
		c := &r.Lines[i]
		level := "warning" // it does not fail the gate by itself
		if r.EachLine || r.OverPeak {
			level = "error"
		}
		run.Results = append(run.Results, sarifResult{"line", level, sarifText{c.Function + " holds more GPU memory at the peak: " + c.growthText()},
			locationOf(&c.Line), map[string]string{"vramprof/v1": fingerprint(c.Function, c.Text)}})
	}
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", " ")
	return e.Encode(sarifLog{"https://json.schemastore.org/sarif-2.1.0.json", "2.1.0", []sarifRun{run}})
}

// mostTelling returns the line that grew most or, without one, that holds most.
func (r *Result) mostTelling() *Line {
	if r.Grew > 0 {
		return &r.Lines[0].Line
	}
	for i := range r.Now.Lines {
		if !r.Now.Lines[i].Mark {
			return &r.Now.Lines[i]
		}
	}
	return &Line{}
}

// locationOf returns where a line is; nothing for memory without one, and for a library's file.
func locationOf(l *Line) []sarifLocation {
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
	return []sarifLocation{{p}}
}

// fingerprint returns what identifies a result across versions: not its line number.
func fingerprint(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:16])
}
