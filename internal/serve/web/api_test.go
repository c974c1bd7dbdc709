// SPDX-License-Identifier: Apache-2.0

package web

import (
	"bytes"
	"path/filepath"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/vramprof/vramprof/report"
)

// overviews is an archive with a list.
type overviews struct {
	archive
	process, pod string
}

func (o *overviews) Overview(process, pod string) (*report.Archive, error) {
	o.process, o.pod = process, pod
	return &report.Archive{Folder: "/var/lib/vramprof"}, nil
}

// TestJSONFitsTheSchemasOfCommands: /api/v1 answers with what commands print.
func TestJSONFitsTheSchemasOfCommands(t *testing.T) {
	past := &overviews{}
	s := New(Config{Session: torchSession(), Archive: past})
	for path, name := range map[string]string{
		"report":                                "report.json",
		"report?view=tree":                      "report.json",
		"report?view=table&top=3":               "report.json",
		"report?view=cache":                     "report.json",
		"leaks":                                 "leaks.json",
		"leaks?older=1m&top=1":                  "leaks.json",
		"processes":                             "ps.json",
		"archive":                               "archive.json",
		"archive?process=python3&pod=ml/train-": "archive.json",
	} {
		w := ask(t, s, "GET", "/api/v1/"+path, nil)
		if w.Code != 200 || w.Header().Get("Content-Type") != "application/json" {
			t.Fatalf("%s: %d %s: %s", path, w.Code, w.Header().Get("Content-Type"), w.Body)
		}
		c := jsonschema.NewCompiler()
		c.AssertFormat()
		schema, err := c.Compile(filepath.Join("../../../docs/schema", name))
		if err != nil {
			t.Fatal(err)
		}
		value, err := jsonschema.UnmarshalJSON(bytes.NewReader(w.Body.Bytes()))
		if err == nil {
			err = schema.Validate(value)
		}
		if err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
	if w := ask(t, s, "GET", "/api/v1/archive?process=python3&pod=ml/train-0", nil); w.Code != 200 || past.process != "python3" || past.pod != "ml/train-0" {
		t.Errorf("%d: process %q of pod %q", w.Code, past.process, past.pod)
	}
}

func TestWrongQuestionsOfJSON(t *testing.T) {
	s := newServer(torchSession())
	for path, want := range map[string]int{
		"report?view=timeline": 400, "report?top=0": 400, "report?top=99999": 400, "leaks?older=-1s": 400, "leaks?view=tree": 400,
		"processes?pid=1": 404, "report?at=1": 404, "archive": 404, "archive?process=": 400, "archive?at=1": 400, "nothing": 404,
	} {
		if w := ask(t, s, "GET", "/api/v1/"+path, nil); w.Code != want || w.Header().Get("X-Go-Pprof") != "" {
			t.Errorf("%s: %d, want %d: %s", path, w.Code, want, w.Body)
		}
	}
}
