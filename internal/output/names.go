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

// The formats of record.
const (
	formatProfile = "pprof"
	formatCapture = "capture"

	// Endings of their files.
	ProfileEnding = ".pb.gz"
	CaptureEnding = ".vram"
)

// Paths returns the paths of the files that record writes, "" for none. With one format, its file
// has the path output. With two, the other file has that path with its own ending. Without output,
// name is the path without an ending. Errors are mistakes of the user: an unknown format, or two
// results for one stream.
func Paths(output string, formats []string, name string) (profile, capture string, err error) {
	for _, format := range formats {
		if format != formatProfile && format != formatCapture {
			return "", "", fmt.Errorf("unknown format %q (formats: %s, %s)", format, formatProfile, formatCapture)
		}
	}
	wantCapture := slices.Contains(formats, formatCapture)
	wantProfile := slices.Contains(formats, formatProfile)
	if len(formats) == 0 {
		wantCapture = strings.HasSuffix(output, CaptureEnding)
		wantProfile = !wantCapture
	}
	stem := output
	for _, ending := range []string{ProfileEnding, CaptureEnding} {
		stem = strings.TrimSuffix(stem, ending)
	}
	switch {
	case wantProfile && wantCapture && IsStream(output):
		return "", "", fmt.Errorf("%s takes one result, but --format asks for two", output)
	case output == "":
		profile, capture = name+ProfileEnding, name+CaptureEnding
	case wantProfile && wantCapture && strings.HasSuffix(output, CaptureEnding):
		profile, capture = stem+ProfileEnding, output
	case wantProfile && wantCapture:
		profile, capture = output, stem+CaptureEnding
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
