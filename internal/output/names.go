// SPDX-License-Identifier: Apache-2.0

package output

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Paths returns the paths of the files that record writes, "" for none. With one format, its file
// has the path output. With two, the other file has that path with its own ending. Without output,
// name is the path without an ending. Errors are mistakes of the user: an unknown format, or two
// results for one stream.
func Paths(output string, formats []string, name string) (profile, capture string, err error) {
	for _, format := range formats {
		if _, err := Recorded.Find(format); err != nil {
			return "", "", err
		}
	}
	wantCapture := slices.Contains(formats, Capture.Name)
	wantProfile := slices.Contains(formats, Pprof.Name)
	if len(formats) == 0 {
		wantCapture = strings.HasSuffix(output, Capture.Suffix)
		wantProfile = !wantCapture
	}
	stem := output
	for _, f := range Recorded {
		stem = strings.TrimSuffix(stem, f.Suffix)
	}
	switch {
	case wantProfile && wantCapture && IsStream(output):
		return "", "", fmt.Errorf("%s takes one result, but --format asks for two", output)
	case output == "":
		profile, capture = name+Pprof.Suffix, name+Capture.Suffix
	case wantProfile && wantCapture && strings.HasSuffix(output, Capture.Suffix):
		profile, capture = stem+Pprof.Suffix, output
	case wantProfile && wantCapture:
		profile, capture = output, stem+Capture.Suffix
	default:
		profile, capture = output, output
	}
	if !wantProfile {
		profile = ""
	}
	if !wantCapture {
		capture = ""
	}
	return profile, capture, nil
}

// DefaultName returns the default name of an output without its ending: "vramprof-HOST-TIME".
func DefaultName(now time.Time) string {
	host, err := os.Hostname()
	if err != nil || host == "" || strings.ContainsAny(host, "/\x00") {
		host = "host"
	}
	return fmt.Sprintf("vramprof-%s-%s", host, now.Format("20060102-150405"))
}

// FolderOf returns the folder of the files that record writes: "." for streams.
func FolderOf(profile, capture string) string {
	if profile == "" {
		profile = capture
	}
	if IsStream(profile) {
		return "."
	}
	return filepath.Dir(profile)
}
