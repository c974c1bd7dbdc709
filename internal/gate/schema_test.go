// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// The properties of objects that WriteSARIF writes, by "Static Analysis Results Interchange Format
// (SARIF) Version 2.1.0": properties that an object must have, begin with "!". Its schema allows no
// others than those of the standard; listed are those that we may write. The schema itself is not
// kept here: nobody has examined its terms.
var sarifObjects = map[string][]string{
	"sarifLog":            {"$schema string", "!version string", "!runs []run"},
	"run":                 {"!tool tool", "columnKind string", "invocations []invocation", "results []result"},
	"tool":                {"!driver toolComponent"},
	"toolComponent":       {"!name string", "semanticVersion string", "rules []reportingDescriptor"},
	"reportingDescriptor": {"!id string", "shortDescription message"},
	"invocation":          {"!executionSuccessful bool", "toolExecutionNotifications []notification"},
	"notification":        {"level string", "!message message"},
	"result":              {"ruleId string", "level string", "!message message", "locations []location", "partialFingerprints map"},
	"message":             {"!text string"}, // or id
	"location":            {"physicalLocation physicalLocation"},
	"physicalLocation":    {"!artifactLocation artifactLocation", "region region"}, // or address
	"artifactLocation":    {"!uri string"},                                         // of ours all have one
	"region":              {"!startLine number", "snippet message"},                // an artifactContent, which has a text too
}

var sarifValues = map[string]func(string) bool{
	"version":         func(v string) bool { return v == "2.1.0" },
	"columnKind":      func(v string) bool { return v == "utf16CodeUnits" || v == "unicodeCodePoints" },
	"level":           func(v string) bool { return slices.Contains([]string{"none", "note", "warning", "error"}, v) },
	"semanticVersion": regexp.MustCompile(`^\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?$`).MatchString,
	"$schema":         isReference, "uri": isReference,
	"startLine": func(v string) bool { n, err := strconv.Atoi(v); return err == nil && n >= 1 },
	"text":      func(v string) bool { return v != "" }, "name": func(v string) bool { return v != "" },
}

func isReference(v string) bool {
	_, err := url.Parse(v)
	return err == nil && v != "" && !strings.ContainsAny(v, " \\<>\"")
}

// checkSARIF returns what a value has that the standard does not allow.
func checkSARIF(at, kind string, v any) (wrong []string) {
	say := func(format string, args ...any) {
		wrong = append(wrong, at+": "+fmt.Sprintf(format, args...))
	}
	if inner, ok := strings.CutPrefix(kind, "[]"); ok {
		list, isList := v.([]any)
		if !isList {
			say("%T, want a list", v)
		}
		for i, x := range list {
			wrong = append(wrong, checkSARIF(fmt.Sprintf("%s[%d]", at, i), inner, x)...)
		}
		return wrong
	}
	properties, isObject := sarifObjects[kind]
	if !isObject {
		name := at[strings.LastIndexByte(at, '.')+1:]
		switch x := v.(type) {
		case string, float64:
			if is := sarifValues[name]; is != nil && !is(fmt.Sprint(x)) {
				say("%v is not allowed", x)
			}
		case map[string]any:
			for key, value := range x {
				if _, ok := value.(string); !ok || key == "" {
					say("%q is %T, want a string", key, value)
				}
			}
		}
		if want := map[string]string{"string": "string", "number": "float64", "bool": "bool", "map": "map[string]interface {}"}[kind]; fmt.Sprintf("%T", v) != want {
			say("%T, want %s", v, kind)
		}
		return wrong
	}
	object, ok := v.(map[string]any)
	if !ok {
		say("%T, want %s", v, kind)
		return wrong
	}
	known := map[string]bool{}
	for _, p := range properties {
		name, of, _ := strings.Cut(p, " ")
		name, required := strings.CutPrefix(name, "!")
		known[name] = true
		if x, has := object[name]; has {
			wrong = append(wrong, checkSARIF(at+"."+name, of, x)...)
		} else if required {
			say("lacks %s", name)
		}
	}
	for name := range object {
		if !known[name] {
			say("%s is no property of %s", name, kind)
		}
	}
	return wrong
}

func TestSARIFIsAsTheStandardSays(t *testing.T) {
	unknown := golden(Options{Tolerance: Tolerance{Share: 0.5}})
	unknown.Why = []string{"the command ended with status 3"}
	for name, r := range map[string]*Result{
		"bad": golden(Options{Tolerance: Tolerance{Share: 0.01}}), "each line": golden(Options{EachLine: true}), "unknown": unknown,
		"not measured": {Verdict: Unknown, Why: []string{"the command never used CUDA"}, Tool: "vramprof 1.0.0-rc1"},
		"good":         {Verdict: Good, Now: &Measurement{Peak: 1}, Tool: "vramprof v0.0.0-20261128-abcdef"},
	} {
		var out bytes.Buffer
		if err := r.WriteSARIF(&out); err != nil {
			t.Fatal(err)
		}
		var v any
		if err := json.Unmarshal(out.Bytes(), &v); err != nil {
			t.Fatal(err)
		}
		for _, wrong := range checkSARIF("", "sarifLog", v) {
			t.Errorf("%s: %s", name, wrong)
		}
		// Each result is of a rule of the run, and no two of a run are of one thing.
		var log sarifLog
		if err := json.Unmarshal(out.Bytes(), &log); err != nil {
			t.Fatal(err)
		}
		seen := map[string]bool{}
		for _, x := range log.Runs[0].Results {
			if !slices.ContainsFunc(log.Runs[0].Tool.Driver.Rules, func(rule sarifRule) bool { return rule.ID == x.Rule }) {
				t.Errorf("%s: no rule %q", name, x.Rule)
			}
			if key := x.Rule + x.Fingerprints["vramprof/v1"]; seen[key] || x.Fingerprints["vramprof/v1"] == "" {
				t.Errorf("%s: fingerprint %q", name, key)
			} else {
				seen[key] = true
			}
		}
	}
	// The check is one.
	for text, want := range map[string]string{
		`{"runs": []}`: "lacks version", `{"version": "2.2.0", "runs": []}`: "2.2.0 is not allowed", `{"version": "2.1.0", "runs": [{}]}`: "lacks tool",
		`{"version": "2.1.0", "runs": [{"tool": {"driver": {"name": "x"}}, "x": 1}]}`:                                 "x is no property of run",
		`{"version": "2.1.0", "runs": [{"tool": {"driver": {"name": "x"}}, "results": [{"level": "bad"}]}]}`:          "bad is not allowed",
		`{"version": "2.1.0", "runs": [{"tool": {"driver": {"name": "x"}}, "results": [{"message": {"text": ""}}]}]}`: "is not allowed",
	} {
		var v any
		if err := json.Unmarshal([]byte(text), &v); err != nil {
			t.Fatal(err)
		}
		if wrong := strings.Join(checkSARIF("", "sarifLog", v), "\n"); !strings.Contains(wrong, want) {
			t.Errorf("%s: %q, want %q", text, wrong, want)
		}
	}
}

// JUnit has no standard: these are the elements and attributes that the readers of Jenkins, GitLab
// and GitHub's actions have in common, in the order of Ant's schema.
func TestJUnitIsAsReadersWantIt(t *testing.T) {
	attributes := map[string][]string{ // "!" must be there
		"testsuites": {"!name", "!tests", "!failures", "!errors"},
		"testsuite":  {"!name", "!tests", "!failures", "!errors"},
		"testcase":   {"!classname", "!name", "file", "line"},
		"failure":    {"!message", "!type"},
		"error":      {"!message", "!type"},
	}
	parents := map[string]string{"testsuites": "", "testsuite": "testsuites", "testcase": "testsuite", "failure": "testcase", "error": "testcase"}
	unknown := golden(Options{Tolerance: Tolerance{Share: 0.5}})
	unknown.Why = []string{"a \x1b[31m < & \" reason"}
	for name, r := range map[string]*Result{"bad": golden(Options{}), "each line": golden(Options{EachLine: true}), "unknown": unknown} {
		var out bytes.Buffer
		if err := r.WriteJUnit(&out); err != nil {
			t.Fatal(err)
		}
		d := xml.NewDecoder(&out)
		var path []string
		cases := map[string]bool{}
		counts := map[string]int{}
		for {
			token, err := d.Token()
			if token == nil {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			switch x := token.(type) {
			case xml.EndElement:
				path = path[:len(path)-1]
			case xml.StartElement:
				element := x.Name.Local
				counts[element]++
				want, known := attributes[element]
				if parent := parents[element]; !known || parent != strings.Join(path[max(len(path)-1, 0):], "") {
					t.Errorf("%s: <%s> in %v", name, element, path)
				}
				path = append(path, element)
				has := map[string]string{}
				for _, a := range x.Attr {
					if has[a.Name.Local] = a.Value; !slices.Contains(want, a.Name.Local) && !slices.Contains(want, "!"+a.Name.Local) {
						t.Errorf("%s: <%s> has %s", name, element, a.Name.Local)
					}
				}
				for _, a := range want {
					if a, must := strings.CutPrefix(a, "!"); must && has[a] == "" {
						t.Errorf("%s: <%s> lacks %s", name, element, a)
					}
				}
				if element == "testcase" {
					if id := has["classname"] + " " + has["name"]; cases[id] {
						t.Errorf("%s: two cases %q", name, id)
					} else {
						cases[id] = true
					}
				}
				if element == "testsuite" {
					counts["tests "+has["tests"]], counts["failures "+has["failures"]], counts["errors "+has["errors"]] = 1, 1, 1
				}
			}
		}
		for attribute, element := range map[string]string{"tests": "testcase", "failures": "failure", "errors": "error"} {
			if counts[fmt.Sprint(attribute, " ", counts[element])] != 1 {
				t.Errorf("%s: %s is not %d", name, attribute, counts[element])
			}
		}
	}
}

// A build that is no release has no semantic version.
func TestSARIFOfABuildHasNoSemanticVersion(t *testing.T) {
	for tool, want := range map[string]bool{"vramprof v1.0.0-rc1": true, "vramprof development": false} {
		r := golden(Options{})
		r.Tool = tool
		var out bytes.Buffer
		if err := r.WriteSARIF(&out); err != nil || strings.Contains(out.String(), "semanticVersion") != want {
			t.Errorf("%s: %v\n%.300s", tool, err, out.String())
		}
	}
}
