// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v2"
)

// packed and notPacked list what nfpm.yaml does not name of packaging: files, and folders of them.
var (
	// scripts/release.sh copies them to build/ and packs them from there.
	packed = []string{"completions/*", "man/*", "changelog.yml"}
	// nfpm.yaml itself, rpmlint's configuration, and what fleets take from the source.
	notPacked = []string{"nfpm.yaml", "rpm/rpmlintrc.toml", "container/*", "grafana/*", "helm/*", "kubernetes/*", "prometheus/*", "slurm/*"}
)

func TestEveryFileOfPackagingIsPackedOrNot(t *testing.T) {
	var config struct {
		Contents []struct {
			Src string
		} `yaml:"contents"`
		Overrides map[string]struct {
			Scripts map[string]string `yaml:"scripts"`
		} `yaml:"overrides"`
	}
	if err := yaml.Unmarshal(readText(t, packaging, "nfpm.yaml"), &config); err != nil {
		t.Fatal(err)
	}
	var sources []string
	for _, entry := range config.Contents {
		sources = append(sources, entry.Src)
	}
	for _, kind := range config.Overrides {
		for _, script := range kind.Scripts {
			sources = append(sources, script)
		}
	}
	repository := filepath.Dir(packaging)
	for _, source := range sources {
		if source == "" || strings.HasPrefix(source, "build/") {
			continue
		}
		if info, err := os.Stat(filepath.Join(repository, source)); err != nil || !info.Mode().IsRegular() {
			t.Errorf("nfpm.yaml packs %s, which is no file: %v", source, err)
		}
	}
	if len(sources) < 15 {
		t.Errorf("nfpm.yaml has %d sources", len(sources))
	}

	err := filepath.WalkDir(packaging, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name, err := filepath.Rel(packaging, path)
		if err != nil {
			return err
		}
		listed := func(pattern string) bool {
			folder, whole := strings.CutSuffix(pattern, "*")
			return name == pattern || whole && strings.HasPrefix(name, folder)
		}
		if !slices.Contains(sources, "packaging/"+name) && !slices.ContainsFunc(slices.Concat(packed, notPacked), listed) {
			t.Errorf("packaging/%s is neither packed by nfpm.yaml nor listed as packed or not here", name)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
