// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const profileFile = "usr.bin.vramprof"

func TestProfileHasTheCapabilitiesOfTheService(t *testing.T) {
	var want, got []string
	for _, file := range []string{"vramprof.service", "alerts.conf", "numa.conf"} {
		line := regexp.MustCompile(`(?m)^CapabilityBoundingSet=(.*)$`).FindSubmatch(readText(t, packaging, "systemd", file))
		if line == nil {
			t.Fatalf("%s has no capabilities", file)
		}
		want = append(want, strings.Fields(string(line[1]))...)
	}
	for _, m := range regexp.MustCompile(`(?m)^  capability (\w+),$`).FindAllSubmatch(readText(t, packaging, "apparmor", profileFile), -1) {
		got = append(got, "CAP_"+strings.ToUpper(string(m[1])))
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("the profile has %v, the service %v", got, want)
	}
}

// TestProfileConfinesOnlyWhatNamesIt expects a profile without a path to which it would be
// attached.
func TestProfileConfinesOnlyWhatNamesIt(t *testing.T) {
	named := regexp.MustCompile(`(?m)^profile (\w+) flags=`).FindSubmatch(readText(t, packaging, "apparmor", profileFile))
	used := regexp.MustCompile(`(?m)^AppArmorProfile=(\w+)$`).FindSubmatch(readText(t, packaging, "systemd", "apparmor.conf"))
	if named == nil || used == nil || string(named[1]) != string(used[1]) {
		t.Errorf("the profile is %q, apparmor.conf names %q", named, used)
	}
}

func TestProfileIsWellFormed(t *testing.T) {
	parser, err := exec.LookPath("apparmor_parser")
	if err != nil {
		t.Skip("no apparmor_parser")
	}
	path := filepath.Join(packaging, "apparmor", profileFile)
	if out, err := exec.Command(parser, "--skip-kernel-load", "--skip-cache", "--warn=all", path).CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}
