// SPDX-License-Identifier: Apache-2.0

// Package html writes a session as one page that needs no network, server or fonts. It shows memory
// over time, a flame graph of the chosen moment or range, all sites, and what NVML's figures are
// made of.
//
// The page is a fixed frame with its style, its script and data. All text of traced processes is in
// the data, as JSON. The script adds it to the page as text, never as markup, and the page's policy
// allows no other script and loads nothing.
package html

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

//go:embed page.html page.css js/*.js
var files embed.FS

// Scripts in the order of their dependence.
var scripts = []string{"words", "data", "tree", "chart", "range", "flame", "flamekeys", "state", "table", "sites", "kept", "steps", "purposes", "panels", "names", "address", "profile", "main"}

// smallData is the most bytes of JSON that stay readable in the page; more are compressed.
const smallData = 32 << 10

// Write writes a page. The same input gives the same bytes.
func Write(w io.Writer, in Input) error {
	page, err := Still(in)
	if err == nil {
		_, err = w.Write(page)
	}
	if err != nil {
		return fmt.Errorf("write html: %w", err)
	}
	return nil
}

// Still returns the page that Write writes.
func Still(in Input) ([]byte, error) {
	if in.Snapshot == nil || in.Stacks == nil {
		return nil, errors.New("snapshot or stacks are missing")
	}
	if err := in.check(); err != nil {
		return nil, err
	}
	plain, err := json.Marshal(newPayload(&in))
	if err != nil {
		return nil, err
	}
	kind, data, err := encode(plain)
	if err != nil {
		return nil, err
	}
	page, _, err := assemble(kind, data, scripts, "")
	return page, err
}

// StillPolicy returns the Content-Security-Policy for a served page of Still.
func StillPolicy() (string, error) {
	_, policy, err := assemble("", nil, scripts, "")
	return policy + unframed, err
}

// unframed ends the policy of an answer; a page itself cannot say it.
const unframed = "; frame-ancestors 'none'"

// assemble returns a page and its policy, to which more is added.
func assemble(kind string, data []byte, scripts []string, more string) (page []byte, policy string, err error) {
	frame, err := files.ReadFile("page.html")
	if err != nil {
		return nil, "", err
	}
	style, err := files.ReadFile("page.css")
	if err != nil {
		return nil, "", err
	}
	script, err := joined(scripts)
	if err != nil {
		return nil, "", err
	}
	policy = fmt.Sprintf("default-src 'none'; script-src '%s'; style-src '%s'; img-src data:; base-uri 'none'; form-action 'none'", digest(script), digest(string(style))) + more
	var out bytes.Buffer
	for rest := string(frame); rest != ""; {
		before, after, found := strings.Cut(rest, "{{")
		out.WriteString(before)
		if !found {
			break
		}
		name, tail, _ := strings.Cut(after, "}}")
		switch rest = tail; name {
		case "policy":
			out.WriteString(policy)
		case "style":
			out.Write(style)
		case "script":
			out.WriteString(script)
		case "kind":
			out.WriteString(kind)
		case "data":
			out.Write(data)
		default:
			return nil, "", fmt.Errorf("page.html: no value for {{%s}}", name)
		}
	}
	return out.Bytes(), policy, nil
}

// joined returns one script made of several, in a scope of its own and without lines of comments.
func joined(names []string) (string, error) {
	var b strings.Builder
	b.WriteString("(() => {\n\"use strict\";\n")
	for _, name := range names {
		text, err := files.ReadFile("js/" + name + ".js")
		if err != nil {
			return "", err
		}
		for line := range strings.Lines(string(text)) {
			if !strings.HasPrefix(strings.TrimSpace(line), "//") {
				b.WriteString(line)
			}
		}
	}
	b.WriteString("})();\n")
	return b.String(), nil
}

// digest returns the name of an inline script or style in a content security policy.
func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}

// encode returns JSON without <, > and & as it stands in a page: as it is, or compressed in base64.
func encode(plain []byte) (kind string, data []byte, err error) {
	if len(plain) <= smallData {
		return "application/json", plain, nil
	}
	var packed bytes.Buffer
	z, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		return "", nil, err
	}
	if _, err := z.Write(plain); err != nil {
		return "", nil, err
	}
	if err := z.Close(); err != nil {
		return "", nil, err
	}
	return "application/gzip+base64", base64.StdEncoding.AppendEncode(nil, packed.Bytes()), nil
}
