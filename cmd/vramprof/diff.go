// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/vramprof/vramprof/internal/fault"
	"github.com/vramprof/vramprof/internal/filekind"
	"github.com/vramprof/vramprof/internal/output"
	"github.com/vramprof/vramprof/internal/terminal"
	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/profile"
	"github.com/vramprof/vramprof/report/text"
)

func diffCommand() *cli.Command {
	return &cli.Command{
		Name:      "diff",
		Usage:     "compare two captures or profiles by line of code",
		UsageText: "vramprof diff [OPTIONS] A B",
		Description: "A and B are captures or pprof profiles that vramprof wrote. For a capture, the end is compared, or the moment after \"@\": " +
			"run.vram@5m, run.vram@peak.",
		Flags: []cli.Flag{
			&cli.IntFlag{Name: "top", Aliases: []string{"T"}, Value: 10, Usage: "list at most `N` lines (default: 10)"},
			&cli.StringFlag{Name: "output", Aliases: []string{"o"}, Usage: "write the difference as a pprof profile to `FILE`; - is stdout"},
			&cli.BoolFlag{Name: "force", Usage: "overwrite FILE"},
			mineFlag(), readFlags()[0],
		},
		Action: diffSessions,
	}
}

func diffSessions(c *cli.Context) error {
	if c.Args().Len() != 2 {
		return fault.Usage(fmt.Errorf("diff needs two files (see vramprof diff --help)"))
	}
	var out output.Destination
	var profiles [2]profile.Profile
	var err error
	if c.IsSet("output") {
		if out, err = output.Pprof.Open(c.String("output"), c.Bool("force")); err != nil {
			return err
		}
		defer out.Discard()
	}
	names := [2]string{c.Args().Get(0), c.Args().Get(1)}
	for i, name := range names {
		if profiles[i], err = profileOf(c, name); err != nil {
			return err
		}
	}
	if out != nil {
		err := out.Save(func(w io.Writer) error { return output.Pprof.WriteDifference(w, profiles[0], profiles[1]) }, "vramprof-diff"+output.Pprof.Suffix)
		if err != nil {
			return err
		}
		sayWrote(c, out)
	}
	return text.WriteDiff(besideResult(c, out), profile.Diff(profiles[0].Mine(mineOf(c)), profiles[1].Mine(mineOf(c))), names, report.Options{Top: c.Int("top")}, terminal.Screen())
}

// splitMoment splits "run.vram@peak", unless a file has that name.
func splitMoment(name string) (path, at string) {
	if i := strings.LastIndexByte(name, '@'); i > 0 {
		if _, err := os.Lstat(name); err != nil {
			return name[:i], name[i+1:]
		}
	}
	return name, ""
}

// profileOf reads a profile, or makes one from a capture at a moment: "run.vram@peak".
func profileOf(c *cli.Context, name string) (profile.Profile, error) {
	path, at := splitMoment(name)
	m, err := parseMoment(at)
	if err != nil {
		return profile.Profile{}, fault.Usage(err)
	}
	p, isProfile, err := readProfile(path, c.Bool(noLimits))
	switch {
	case isProfile && at != "":
		return profile.Profile{}, fault.Usage(fmt.Errorf("%s is a profile, which has only one moment (remove @%s)", path, at))
	case isProfile || err != nil:
		return p, err
	}
	r, done, err := readMoments(c, path, &m)
	if err != nil {
		return profile.Profile{}, err
	}
	defer done()
	s, err := snapshotAt(r, m)
	if err != nil {
		return profile.Profile{}, err
	}
	return profile.New(s, r), nil
}

// readProfile reads a profile. It reports false if the file is none; then it may be a capture.
func readProfile(path string, unlimited bool) (p profile.Profile, isProfile bool, err error) {
	f, err := untrusted.OpenRegular(path)
	if err != nil {
		return p, false, nil // the error of reading it as a capture is better
	}
	defer f.Close()
	magic := make([]byte, 2)
	if n, _ := f.ReadAt(magic, 0); n != 2 || magic[0] != 0x1f || magic[1] != 0x8b { // gzip
		return p, false, nil
	}
	if unlimited {
		p, err = profile.ReadUnlimited(f)
	} else {
		p, err = profile.Read(f)
	}
	if err == nil {
		return p, true, nil
	}
	if k := filekind.Of(path); k.Known() && k.Class != filekind.Profile {
		return p, false, fmt.Errorf("read %s: %s", path, k.Text(path, "a capture or profile"))
	}
	return p, false, fmt.Errorf("%s: %w", path, err)
}
