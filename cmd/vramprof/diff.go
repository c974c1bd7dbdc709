// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"

	"github.com/urfave/cli/v2"

	"github.com/vramprof/vramprof/internal/fault"
	"github.com/vramprof/vramprof/internal/output"
	"github.com/vramprof/vramprof/internal/source"
	"github.com/vramprof/vramprof/internal/terminal"
	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/profile"
	"github.com/vramprof/vramprof/report/text"
)

func diffCommand() *cli.Command {
	return &cli.Command{
		Name:      "diff",
		Usage:     "compare two captures or profiles by line of code",
		UsageText: "vramprof diff [OPTIONS] A B",
		Description: "A and B are captures or pprof profiles that vramprof wrote, or memory snapshots of PyTorch. For a capture, the end is compared, or the moment after \"@\": " +
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

// profileOf reads a profile, or makes one from a capture at a moment: "run.vram@peak".
func profileOf(c *cli.Context, name string) (profile.Profile, error) {
	path, at := source.SplitMoment(name)
	m, err := source.ParseMoment(at)
	if err != nil {
		return profile.Profile{}, fault.Usage(err)
	}
	p, isProfile, err := sourceOptions(c).Profile(path)
	switch {
	case isProfile && at != "":
		return profile.Profile{}, fault.Usage(fmt.Errorf("%s is a profile, which has only one moment (remove @%s)", path, at))
	case isProfile || err != nil:
		return p, err
	}
	r, done, err := sourceOptions(c).Open(path, &m)
	if err != nil {
		return profile.Profile{}, err
	}
	defer done()
	s, err := source.SnapshotAt(r, m)
	if err != nil {
		return profile.Profile{}, err
	}
	return profile.New(s, r), nil
}
