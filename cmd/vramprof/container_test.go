// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
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

// documentedRights returns the options of docs/install.md for a container: rights=(…).
func documentedRights(t *testing.T) []string {
	t.Helper()
	list := regexp.MustCompile(`(?s)\n    rights=\((.*?)\)\n`).FindSubmatch(readText(t, "../../docs/install.md"))
	if list == nil {
		t.Fatal("docs/install.md lists no rights of a container")
	}
	return strings.Fields(string(list[1]))
}

func TestContainersHaveTheSameRightsEverywhere(t *testing.T) {
	want := slices.Sorted(slices.Values(readDaemonSet(t).Spec.Template.Spec.Containers[0].SecurityContext.Capabilities.Add))
	var added, others []string
	for _, option := range documentedRights(t) {
		if name, ok := strings.CutPrefix(option, "--cap-add="); ok {
			added = append(added, name)
		} else {
			others = append(others, option)
		}
	}
	if slices.Sort(added); !slices.Equal(added, want) {
		t.Errorf("docs/install.md adds %v to a container, the DaemonSet %v", added, want)
	}
	rest := []string{"--pid=host", "--gpus=all", "--read-only", "--cap-drop=all", "--security-opt=no-new-privileges", "--security-opt=seccomp=unconfined", "--security-opt=apparmor=unconfined"}
	if !slices.Equal(others, rest) {
		t.Errorf("docs/install.md gives a container %v, the DaemonSet has %v", others, rest)
	}
	template := string(readText(t, packaging, "helm/vramprof/templates/daemonset.yaml"))
	var chart []string
	for _, line := range regexp.MustCompile(`(?m)^ +add:\n((?: +- [A-Z_]+\n)+) +\{\{- if .Values.sysAdmin \}\}\n +- SYS_ADMIN\n`).FindAllStringSubmatch(template, -1) {
		for name := range strings.FieldsFuncSeq(line[1], func(r rune) bool { return r == ' ' || r == '\n' || r == '-' }) {
			chart = append(chart, name)
		}
	}
	if slices.Sort(chart); !slices.Equal(chart, want) {
		t.Errorf("the chart adds %v, the DaemonSet %v", chart, want)
	}
}

// TestKubernetesOffersSYSLOG: off by default, as a value of the chart and as a line of the manifest
// to uncomment. serve drops the capability after its start.
func TestKubernetesOffersSYSLOG(t *testing.T) {
	manifest := string(readText(t, packaging, "kubernetes/daemonset.yaml"))
	changed := strings.Replace(manifest, "\n                # - SYSLOG ", "\n                - SYSLOG ", 1)
	got := capabilitiesOf(t, changed)
	if want := append(capabilitiesOf(t, manifest), "SYSLOG"); slices.Contains(want[:len(want)-1], "SYSLOG") || !slices.Equal(got, want) {
		t.Errorf("with its line, the manifest adds %v, want %v", got, want)
	}
	if session.Tracing.Has(sandbox.NewSet(unix.CAP_SYSLOG)) {
		t.Error("serve keeps CAP_SYSLOG")
	}
	var values struct{ Syslog *bool }
	if err := yaml.Unmarshal(readText(t, packaging, "helm/vramprof/values.yaml"), &values); err != nil || values.Syslog == nil || *values.Syslog {
		t.Errorf("the chart's value is %v (%v), want false", values.Syslog, err)
	}
	template := string(readText(t, packaging, "helm/vramprof/templates/daemonset.yaml"))
	if !regexp.MustCompile(`(?m)^ +\{\{- if .Values.syslog \}\}\n +- SYSLOG\n +\{\{- else \}\}\n +# - SYSLOG #`).MatchString(template) {
		t.Error("the chart does not add SYSLOG where its value asks for it")
	}
}

func capabilitiesOf(t *testing.T, manifest string) []string {
	t.Helper()
	return daemonSetIn(t, manifest).Spec.Template.Spec.Containers[0].SecurityContext.Capabilities.Add
}

// instructions returns the instructions of the Dockerfile with their arguments, in order.
func instructions(t *testing.T) (list [][2]string) {
	t.Helper()
	text := strings.ReplaceAll(string(readText(t, packaging, "container/Dockerfile")), "\\\n", " ")
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			name, rest, _ := strings.Cut(line, " ")
			list = append(list, [2]string{name, rest})
		}
	}
	return list
}

// last returns the arguments of the last such instruction, which is the one that counts.
func last(t *testing.T, name string) string {
	t.Helper()
	list := instructions(t)
	for i := range slices.Backward(list) {
		if list[i][0] == name {
			return list[i][1]
		}
	}
	t.Fatalf("the Dockerfile has no %s", name)
	return ""
}

func TestDockerfileStartsServe(t *testing.T) {
	var entrypoint, command []string
	if err := json.Unmarshal([]byte(last(t, "ENTRYPOINT")), &entrypoint); err != nil || !slices.Equal(entrypoint, []string{"vramprof"}) {
		t.Errorf("the entry point is %v, %v", entrypoint, err) // a shell would not pass SIGTERM on
	}
	_, port, _ := strings.Cut(defaultAddress, ":")
	if err := json.Unmarshal([]byte(last(t, "CMD")), &command); err != nil || !slices.Equal(command, []string{"serve", "--web.listen-address=:" + port}) {
		t.Errorf("it runs %v, %v: a published port does not reach localhost", command, err)
	}
	if last(t, "EXPOSE") != port || last(t, "USER") != "root" {
		t.Errorf("port %s, user %s", last(t, "EXPOSE"), last(t, "USER"))
	}
	environment := strings.Fields(last(t, "ENV"))
	for _, v := range readDaemonSet(t).Spec.Template.Spec.Containers[0].Env {
		if !slices.Contains(environment, v.Name+"="+v.Value) {
			t.Errorf("the image lacks %s=%s, which the DaemonSet has", v.Name, v.Value)
		}
	}
}

// TestDockerfileBuildsForOtherProcessors: commands in the image would need an emulator, and a base
// without a registry depends on the machine.
func TestDockerfileBuildsForOtherProcessors(t *testing.T) {
	for _, i := range instructions(t) {
		if i[0] == "RUN" {
			t.Errorf("the Dockerfile runs %s", i[1])
		}
	}
	pattern := strings.Fields(last(t, "ADD"))[0]
	for _, arch := range []string{"amd64", "arm64"} {
		if ok, err := filepath.Match(strings.ReplaceAll(pattern, "${TARGETARCH}", arch), "vramprof-1.0.0-rc1-linux-"+arch+".tar.gz"); !ok || err != nil {
			t.Errorf("%s does not match the tarball for %s: %v", pattern, arch, err)
		}
	}
	base := strings.TrimPrefix(instructions(t)[0][1], "BASE=")
	if !strings.HasPrefix(base, "docker.io/") || last(t, "FROM") != "${BASE}" {
		t.Errorf("its base is %s, of BASE=%s", last(t, "FROM"), base)
	}
	if strings.Contains(string(readText(t, "../../scripts/fleet/container.sh")), base) {
		t.Errorf("container.sh repeats the base %s of the Dockerfile", base)
	}
}

func TestChartRunsTheImageThatIsBuilt(t *testing.T) {
	build := regexp.MustCompile(`(?m)^    docker build --tag=(\S+) --file=(\S+) `).FindSubmatch(readText(t, "../../docs/install.md"))
	if build == nil {
		t.Fatal("docs/install.md does not build an image")
	}
	if _, err := os.Stat(filepath.Join("../..", string(build[2]))); err != nil {
		t.Error(err)
	}
	if image := readDaemonSet(t).Spec.Template.Spec.Containers[0].Image; image != string(build[1]) {
		t.Errorf("docs/install.md builds %s, the DaemonSet runs %s", build[1], image)
	}
	var values struct {
		Image struct{ Repository, Tag string }
	}
	var chart struct {
		AppVersion string `yaml:"appVersion"`
	}
	for file, into := range map[string]any{"values.yaml": &values, "Chart.yaml": &chart} {
		if err := yaml.Unmarshal(readText(t, packaging, "helm/vramprof", file), into); err != nil {
			t.Fatal(err)
		}
	}
	if image := values.Image.Repository + ":" + chart.AppVersion; values.Image.Tag != "" || image != string(build[1]) {
		t.Errorf("docs/install.md builds %s, the chart runs %s", build[1], image)
	}
}
