// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/vramprof/vramprof/internal/views"
	"github.com/vramprof/vramprof/report"
	reportjson "github.com/vramprof/vramprof/report/json"
	"github.com/vramprof/vramprof/report/purpose"
	"github.com/vramprof/vramprof/tracer/archive"
	"github.com/vramprof/vramprof/tracer/procaddr"
)

const schemaFolder = "../../docs/schema"

// schemas are the types of the JSON outputs, by the file of their schema in docs/schema.
var schemas = map[string]struct {
	title   string
	version int
	value   any
}{
	"leaks.json":   {"vramprof leaks --json", reportjson.LeaksVersion, reportjson.LeaksReport{}},
	"report.json":  {"vramprof report --json", reportjson.ViewVersion, reportjson.ViewReport{}},
	"holders.json": {"vramprof holders --json", reportjson.HoldersVersion, reportjson.HoldersReport{}},
	"explain.json": {"vramprof explain --json", reportjson.ExplainVersion, reportjson.ExplainReport{}},
	"compare.json": {"vramprof compare --json", reportjson.CompareVersion, reportjson.CompareReport{}},
	"whatif.json":  {"vramprof whatif --json", reportjson.WhatIfVersion, reportjson.WhatIfReport{}},
	"fit.json":     {"vramprof fit --json", reportjson.WhatIfVersion, reportjson.FitReport{}},
	"ps.json":      {"vramprof ps --json", reportjson.ProcessesVersion, reportjson.ProcessesReport{}},
	"check.json":   {"vramprof check --libraries --json", reportjson.LibrariesVersion, reportjson.LibrariesReport{}},
	"oom.json":     {"vramprof serve: record of an out-of-memory error", archive.RecordVersion, archive.Record{}},
	"archive.json": {"vramprof report ARCHIVE --json", reportjson.ArchiveVersion, reportjson.ArchiveReport{}},
}

// values lists what fields can hold, by the name of the definition and the JSON field.
var values = map[string][]string{
	"Frame.language":      {"python", "native", "mark"},
	"Branch.language":     {"python", "native", "mark"},
	"Site.plane":          {"tensor", "driver", "managed", "host", "imported"},
	"Plane.plane":         {"tensor", "cache", "driver", "rounding", "before", "unexplained", "host", "managed", "system", "asleep", "imported"},
	"Verdict.class":       {"leaking", "growing", "cache", "steady", "one-off", "unknown"},
	"View.view":           views.All,
	"PurposeRow.purpose":  codesOf(purpose.Kinds),
	"PurposePiece.cache":  codesOf(report.CacheKinds),
	"Library.layer":       {"driver", "runtime"},
	"GPU.addressing_mode": {"ATS", "HMM", "none"},
	"Answer.by":           {"cuGetProcAddress", "cuGetProcAddress_v2"},
	"Answer.mode":         procaddr.Modes[:],
	"Presence.mps":        {"server", "control", "client"},
	"Orphan.worker":       {"data_loader", "spawned", "fork_server", "resource_tracker"},
	"Orphan.known_by":     {"environment", "process_group", "session"},
	"Scenario.verdict":    {"fits", "depends", "out_of_memory"},
	"FittedJob.verdict":   {"fits", "depends", "out_of_memory"},
	"TimeMark.kind":       {"out_of_memory", "large", "began", "ended"},
}

func codesOf[T ~string](list []T) (codes []string) {
	for _, c := range list {
		codes = append(codes, string(c))
	}
	return codes
}

// nullable lists the fields that are null when they are empty.
var nullable = map[string]bool{"Listed.libraries": true}

// TestSchema compares docs/schema with the types of the JSON outputs; -update writes it.
func TestSchema(t *testing.T) {
	for name, s := range schemas {
		w := schemaWriter{t: t, defs: map[string]any{}, comments: map[string]map[string]string{}}
		root := w.object(reflect.TypeOf(s.value))
		root["properties"].(map[string]any)["version"] = map[string]any{"const": s.version, "description": "rises when a field changes its meaning or goes away"}
		root["$schema"], root["title"], root["$defs"] = "https://json-schema.org/draft/2020-12/schema", s.title, w.defs
		var text bytes.Buffer
		e := json.NewEncoder(&text)
		e.SetEscapeHTML(false)
		e.SetIndent("", "  ")
		if err := e.Encode(root); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(schemaFolder, name)
		if *update {
			if err := os.WriteFile(path, text.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if old, err := os.ReadFile(path); err != nil || !bytes.Equal(old, text.Bytes()) {
			t.Errorf("%s is out of date: go test ./cmd/vramprof -run TestSchema -update writes it", path)
		}
	}
	for name := range values {
		if !usedValues[name] {
			t.Errorf("no JSON output has the field %s", name)
		}
	}
}

var usedValues = map[string]bool{}

// TestSchemasFitTheGoldenFiles validates the golden files that have all fields: other tests leave
// some out for brevity.
func TestSchemasFitTheGoldenFiles(t *testing.T) {
	for file, name := range map[string]string{
		"leaks.json": "leaks.json", "view-summary.json": "report.json", "view-stats.json": "report.json", "view-table.json": "report.json",
		"view-timeline.json": "report.json", "view-tree.json": "report.json", "holders.json": "holders.json", "explain.json": "explain.json",
		"compare.json": "compare.json",
	} {
		text, err := os.ReadFile(filepath.Join("../../report/json/testdata", file))
		if err != nil {
			t.Fatal(err)
		}
		if err := validate(name, text); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
}

func TestSchemasAreStrict(t *testing.T) {
	const report = `{"processes": [{"pid": 1, "command": "a", "gpu": null, "bytes": 0, "libraries": []%s}], "version": 1}`
	for more, valid := range map[string]bool{``: true, `, "extra": 1`: false, `, "gpu_uuid": 1`: false, `, "gpu_uuid": "GPU-1"`: true} {
		if err := validate("ps.json", fmt.Appendf(nil, report, more)); (err == nil) != valid {
			t.Errorf("%q: %v", more, err)
		}
	}
	if validate("ps.json", []byte(`{"processes": [{"pid": 1, "command": "a", "gpu": 0, "bytes": 0}], "version": 1}`)) == nil {
		t.Error("a process without libraries is valid")
	}
	if validate("ps.json", []byte(`{"processes": [], "version": 2}`)) == nil {
		t.Error("version 2 is valid")
	}
}

// validate checks a JSON output against docs/schema/NAME.
func validate(name string, text []byte) error {
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	schema, err := c.Compile(filepath.Join(schemaFolder, name))
	if err != nil {
		return err
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return err
	}
	return schema.Validate(value)
}

// schemaWriter makes schemas of Go types; the fields' comments become descriptions.
type schemaWriter struct {
	t        *testing.T
	defs     map[string]any
	comments map[string]map[string]string // by package path; then by type, or type and field
}

// object is the schema of a struct. Fields without omitempty are required.
func (w *schemaWriter) object(typ reflect.Type) map[string]any {
	properties, required := map[string]any{}, []string{}
	w.fields(typ, properties, &required)
	schema := map[string]any{"type": "object", "properties": properties, "required": required, "additionalProperties": false}
	if text := strings.TrimPrefix(strings.TrimPrefix(w.comment(typ, ""), typ.Name()+" "), "is "); text != "" {
		schema["description"] = strings.ToUpper(text[:1]) + text[1:]
	}
	return schema
}

func (w *schemaWriter) fields(typ reflect.Type, properties map[string]any, required *[]string) {
	for i := range typ.NumField() {
		f := typ.Field(i)
		tag, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous:
			w.fields(f.Type, properties, required)
			continue
		case !f.IsExported() || tag == "-":
			continue
		}
		optional := options == "omitempty"
		schema := w.value(f.Type, optional)
		if text := w.comment(typ, f.Name); text != "" {
			schema["description"] = text
		}
		name := definition(typ) + "." + tag
		if list, ok := values[name]; ok {
			usedValues[name], schema["enum"] = true, list
		}
		if nullable[name] {
			schema["type"] = []any{schema["type"], "null"}
		}
		properties[tag] = schema
		if !optional {
			*required = append(*required, tag)
		}
	}
}

// value is the schema of a field's type. What is left out when it is empty is never null.
func (w *schemaWriter) value(typ reflect.Type, optional bool) map[string]any {
	switch {
	case typ == reflect.TypeFor[time.Time]():
		return map[string]any{"type": "string", "format": "date-time"}
	case typ.Kind() == reflect.Pointer && optional:
		return w.value(typ.Elem(), false)
	case typ.Kind() == reflect.Pointer:
		schema := w.value(typ.Elem(), false)
		schema["type"] = []any{schema["type"], "null"}
		return schema
	}
	switch typ.Kind() {
	case reflect.Struct:
		name := definition(typ)
		if _, ok := w.defs[name]; !ok {
			w.defs[name] = nil // for types that contain themselves
			w.defs[name] = w.object(typ)
		}
		return map[string]any{"$ref": "#/$defs/" + name}
	case reflect.Slice:
		return map[string]any{"type": "array", "items": w.value(typ.Elem(), false)}
	case reflect.Map:
		return map[string]any{"type": "object", "additionalProperties": w.value(typ.Elem(), false)}
	case reflect.String:
		return map[string]any{"type": "string"}
	case reflect.Bool:
		return map[string]any{"type": "boolean"}
	case reflect.Int, reflect.Int32, reflect.Int64:
		return map[string]any{"type": "integer"}
	case reflect.Uint32, reflect.Uint64:
		return map[string]any{"type": "integer", "minimum": 0}
	case reflect.Float64:
		return map[string]any{"type": "number"}
	}
	w.t.Fatalf("no schema for %v", typ)
	return nil
}

// definition is the name of a type in a schema: "Site" for SiteReport.
func definition(typ reflect.Type) string {
	name := strings.TrimSuffix(typ.Name(), "Report")
	return strings.ToUpper(name[:1]) + name[1:]
}

// comment returns the comment of a type or of its field.
func (w *schemaWriter) comment(typ reflect.Type, field string) string {
	pkg := typ.PkgPath()
	if w.comments[pkg] == nil {
		w.comments[pkg] = commentsOf(w.t, pkg)
	}
	name := typ.Name()
	if field != "" {
		name += "." + field
	}
	return w.comments[pkg][name]
}

// commentsOf reads the comments of the types and fields of a package, with its tests left out.
func commentsOf(t *testing.T, pkg string) map[string]string {
	t.Helper()
	folder := "." // of package main
	if path, ok := strings.CutPrefix(pkg, "github.com/vramprof/vramprof/"); ok && path != "cmd/vramprof" {
		folder = filepath.Join("../..", path)
	}
	list := map[string]string{}
	files, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			declared, ok := d.(*ast.GenDecl)
			if !ok || declared.Tok != token.TYPE {
				continue
			}
			for _, spec := range declared.Specs {
				typ := spec.(*ast.TypeSpec)
				list[typ.Name.Name] = oneLine(declared.Doc)
				if s, ok := typ.Type.(*ast.StructType); ok {
					for _, f := range s.Fields.List {
						for _, n := range f.Names {
							list[typ.Name.Name+"."+n.Name] = oneLine(f.Comment)
						}
					}
				}
			}
		}
	}
	return list
}

func oneLine(c *ast.CommentGroup) string { return strings.Join(strings.Fields(c.Text()), " ") }
