// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v2"
	"golang.org/x/sys/unix"

	"github.com/vramprof/vramprof/internal/session"
	"github.com/vramprof/vramprof/tracer/sandbox"
)

const packaging = "../../packaging"

// daemonSet is what the tests look at.
type daemonSet struct {
	Kind string
	Spec struct {
		Template struct {
			Spec struct {
				HostPID    bool `yaml:"hostPID"`
				Containers []struct {
					Image           string
					Args            []string
					Env             []struct{ Name, Value string }
					SecurityContext struct {
						Privileged               *bool
						AllowPrivilegeEscalation *bool `yaml:"allowPrivilegeEscalation"`
						ReadOnlyRootFilesystem   bool  `yaml:"readOnlyRootFilesystem"`
						Capabilities             struct{ Drop, Add []string }
					} `yaml:"securityContext"`
					Ports []struct {
						ContainerPort int `yaml:"containerPort"`
					}
				}
			}
		}
	}
}

func readDaemonSet(t *testing.T) daemonSet {
	t.Helper()
	return daemonSetIn(t, string(readText(t, packaging, "kubernetes", "daemonset.yaml")))
}

func daemonSetIn(t *testing.T, manifest string) daemonSet {
	t.Helper()
	for text := range strings.SplitSeq(manifest, "\n---\n") {
		var d daemonSet
		if err := yaml.Unmarshal([]byte(text), &d); err != nil {
			t.Fatal(err)
		}
		if d.Kind == "DaemonSet" {
			return d
		}
	}
	t.Fatal("no DaemonSet")
	return daemonSet{}
}

func readText(t *testing.T, path ...string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// documentedCapabilities returns the capabilities of docs/install.md without the one that serve
// does not need: it starts no command.
func documentedCapabilities(t *testing.T) []string {
	t.Helper()
	var list []string
	for _, row := range regexp.MustCompile("(?m)^\\| (`CAP_.*?) \\|").FindAllSubmatch(readText(t, "../../docs/install.md"), -1) {
		for _, name := range regexp.MustCompile("CAP_([A-Z_]+)").FindAllSubmatch(row[1], -1) {
			list = append(list, string(name[1]))
		}
	}
	list = slices.DeleteFunc(list, func(name string) bool { return name == "KILL" })
	slices.Sort(list)
	return list
}

func TestDaemonSetHasTheDocumentedRights(t *testing.T) {
	numbers := map[string]int{"BPF": unix.CAP_BPF, "PERFMON": unix.CAP_PERFMON, "CHECKPOINT_RESTORE": unix.CAP_CHECKPOINT_RESTORE,
		"SYS_PTRACE": unix.CAP_SYS_PTRACE, "DAC_READ_SEARCH": unix.CAP_DAC_READ_SEARCH}
	pod := readDaemonSet(t).Spec.Template.Spec
	if !pod.HostPID || len(pod.Containers) != 1 {
		t.Fatalf("hostPID %v, %d containers", pod.HostPID, len(pod.Containers))
	}
	rights := pod.Containers[0].SecurityContext
	if rights.AllowPrivilegeEscalation == nil || *rights.AllowPrivilegeEscalation || rights.Privileged == nil || *rights.Privileged || !rights.ReadOnlyRootFilesystem {
		t.Errorf("it may do too much: %+v", rights)
	}
	added := slices.Sorted(slices.Values(rights.Capabilities.Add))
	if want := documentedCapabilities(t); !slices.Equal(added, want) || !slices.Equal(rights.Capabilities.Drop, []string{"ALL"}) {
		t.Errorf("it has %v, docs/install.md lists %v", rights.Capabilities, want)
	}
	var held sandbox.Set
	for _, name := range added {
		held |= sandbox.NewSet(numbers[name])
	}
	// The default limit of locked memory suffices for the rings of CPUs that come online later.
	if want := session.Tracing &^ sandbox.NewSet(unix.CAP_IPC_LOCK); held != want {
		t.Errorf("it has %x, tracing needs %x", uint64(held), uint64(want))
	}
}

func TestDaemonSetsOptionsExist(t *testing.T) {
	container := readDaemonSet(t).Spec.Template.Spec.Containers[0]
	if len(container.Args) == 0 || container.Args[0] != "serve" {
		t.Fatalf("it runs %v", container.Args)
	}
	known := map[string]bool{}
	for _, f := range serveFlags() {
		for _, name := range f.Names() {
			known[name] = true
		}
	}
	for _, arg := range container.Args[1:] {
		if name, _, _ := strings.Cut(strings.TrimPrefix(arg, "--"), "="); !known[name] {
			t.Errorf("serve has no option %s", arg)
		}
	}
	_, port, _ := strings.Cut(defaultAddress, ":")
	if !slices.Contains(container.Args, "--web.listen-address=:"+port) {
		t.Errorf("%v: the kubelet and Prometheus do not reach localhost", container.Args)
	}
}

func TestManifestsAndValuesAreYAML(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(packaging, "kubernetes", "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range append(files, filepath.Join(packaging, "helm/vramprof/values.yaml"), filepath.Join(packaging, "helm/vramprof/Chart.yaml")) {
		for _, text := range bytes.Split(readText(t, file), []byte("\n---\n")) {
			var any map[string]any
			if err := yaml.UnmarshalStrict(text, &any); err != nil {
				t.Errorf("%s: %v", file, err)
			}
		}
	}
}

// TestChartHasTheRulesAndTheDashboard: a chart cannot read files outside of its folder, so it has
// copies.
func TestChartHasTheRulesAndTheDashboard(t *testing.T) {
	for copied, from := range map[string]string{"rules.yml": "prometheus/vramprof.rules.yml", "dashboard.json": "grafana/vramprof.json"} {
		if !bytes.Equal(readText(t, packaging, "helm/vramprof/files", copied), readText(t, packaging, from)) {
			t.Errorf("packaging/helm/vramprof/files/%s differs from packaging/%s (run scripts/fleet/generate.sh)", copied, from)
		}
	}
}
