// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strings"
)

// module is a Go module that is linked into the binary, or Go's standard library.
type module struct {
	path, version string
	sum           string // "h1:…" of go.sum; "": the standard library
	license       string // an expression of SPDX identifiers: "Apache-2.0 AND MIT"
	copyrights    []string
	texts         []string // of licenses other than Apache-2.0, and notices
}

func modules(info *debug.BuildInfo) ([]module, error) {
	std := module{path: "std", version: strings.TrimPrefix(info.GoVersion, "go")}
	root, err := output("go", "env", "GOROOT")
	if err != nil {
		return nil, err
	}
	if err := std.readLicenses(root); err != nil {
		return nil, err
	}
	cache, err := output("go", "env", "GOMODCACHE")
	if err != nil {
		return nil, err
	}
	list := []module{std}
	for _, d := range info.Deps {
		if d.Replace != nil {
			return nil, fmt.Errorf("%s is replaced: a release has no replaced modules", d.Path)
		}
		folder := filepath.Join(cache, escape(d.Path)+"@"+d.Version)
		m := module{path: d.Path, version: d.Version, sum: d.Sum}
		if err := m.readLicenses(folder); err != nil {
			return nil, err
		}
		list = append(list, m)
	}
	return list, nil
}

// escape returns a path as the module cache has it: "github.com/!n!v!i!d!i!a/go-nvml".
func escape(path string) string {
	return regexp.MustCompile(`[A-Z]`).ReplaceAllStringFunc(path, func(c string) string { return "!" + strings.ToLower(c) })
}

func output(name string, arguments ...string) (string, error) {
	command := exec.Command(name, arguments...)
	command.Stderr = os.Stderr
	out, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w", strings.Join(command.Args, " "), err)
	}
	return strings.TrimSpace(string(out)), nil
}

// The names of files with licenses, and of notices that the Apache license asks to keep.
var (
	licenseFile = regexp.MustCompile(`(?i)^(licen[cs]e|copying)([-._].*)?$`)
	noticeFile  = regexp.MustCompile(`(?i)^notice([-._].*)?$`)
)

// readLicenses reads the licenses in the folder of a module.
func (m *module) readLicenses(folder string) error {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return err
	}
	seen := map[string]bool{}
	var names []string
	for _, e := range entries {
		isLicense, isNotice := licenseFile.MatchString(e.Name()), noticeFile.MatchString(e.Name())
		if e.IsDir() || !isLicense && !isNotice {
			continue
		}
		text, err := os.ReadFile(filepath.Join(folder, e.Name()))
		if err != nil {
			return err
		}
		m.copyrights = append(m.copyrights, copyrightLines(string(text))...)
		if isNotice {
			m.texts = append(m.texts, string(text))
			continue
		}
		found := identify(string(text))
		for _, name := range found {
			if !seen[name] {
				seen[name] = true
				names = append(names, name)
			}
		}
		if len(found) != 1 || found[0] != apache {
			m.texts = append(m.texts, withoutApache(string(text)))
		}
	}
	if m.license = strings.Join(names, " AND "); m.license == "" {
		return fmt.Errorf("%s has no license that is known here: see %s", m.path, folder)
	}
	return nil
}
