// SPDX-License-Identifier: Apache-2.0

package html

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
)

// Section is a named part of a page's data, as JSON without <, > and &.
type Section struct {
	Name string
	JSON []byte
}

// Sections returns the data of a page in sections, of which a server sends those that change.
func Sections(in Input) ([]Section, error) {
	if err := in.check(); err != nil {
		return nil, fmt.Errorf("compose page: %w", err)
	}
	p := newPayload(&in)
	var list []Section
	for _, x := range []struct {
		name  string
		value any
	}{
		{"v", p.Version}, {"title", p.Title}, {"host", p.Host}, {"until", p.Until}, {"wall", p.Wall}, {"traced", p.Traced}, {"end", p.End},
		{"strings", p.Strings}, {"planes", p.Planes}, {"apart", p.Apart}, {"processes", p.Processes}, {"gpus", p.GPUs}, {"frames", p.Frames}, {"before", p.Before},
		{"tree", p.Tree}, {"entries", p.Entries}, {"chart", p.Chart}, {"opening", p.Opening}, {"verdicts", p.Verdicts}, {"kept", p.Kept}, {"judged", p.Judged}, {"balance", p.Balance}, {"advice", p.Advice},
		{"parts", p.Parts}, {"steps", p.Steps}, {"remarks", p.Remarks}, {"doubts", p.Doubts}, {"warnings", p.Warnings}, {"live", p.Live},
	} {
		text, err := json.Marshal(x.value)
		if err != nil {
			return nil, fmt.Errorf("compose page: %w", err)
		}
		list = append(list, Section{x.name, text})
	}
	return list, nil
}

// Join returns sections as one JSON object.
func Join(list []Section) []byte {
	out := []byte{'{'}
	for i, x := range list {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, '"')
		out = append(out, x.Name...)
		out = append(out, '"', ':')
		out = append(out, x.JSON...)
	}
	return append(out, '}')
}

// Changed returns the sections of now that differ from those of before.
func Changed(before, now []Section) (list []Section) {
	for i, x := range now {
		if i >= len(before) || !bytes.Equal(before[i].JSON, x.JSON) {
			list = append(list, x)
		}
	}
	return list
}

// servedScripts are those of a page that is served.
var servedScripts = slices.Insert(slices.Clone(scripts), len(scripts)-1, "errors", "live", "updates", "follow")

// Page returns a page that is served, and its Content-Security-Policy: nothing but the page's own
// script runs, which connects to its server only, and no other page can frame it.
func Page(data []Section) (page []byte, policy string, err error) {
	kind, text, err := encode(Join(data))
	if err != nil {
		return nil, "", fmt.Errorf("compose page: %w", err)
	}
	page, policy, err = assemble(kind, text, servedScripts, "; connect-src 'self'")
	if err != nil {
		return nil, "", fmt.Errorf("compose page: %w", err)
	}
	return page, policy + unframed, nil
}
