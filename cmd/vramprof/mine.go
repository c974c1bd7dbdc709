// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"regexp"

	"github.com/urfave/cli/v2"

	"github.com/vramprof/vramprof/internal/fault"
	"github.com/vramprof/vramprof/report/frames"
	"github.com/vramprof/vramprof/symbolize/callstack"
)

// mineFlag returns the flag of every command that shows stacks. It is checked before the command
// begins.
func mineFlag() cli.Flag {
	return &cli.StringFlag{
		Name:  "mine",
		Usage: "your own code is what the regular expression `REGEX` matches in a frame's source file, mapped file or function (default: all but libraries)",
		Action: func(c *cli.Context, text string) error {
			if text == "" {
				return fault.Usage(errors.New("--mine is empty (without it, your own code is all but libraries)"))
			}
			if _, err := regexp.Compile(text); err != nil {
				return fault.Usage(fmt.Errorf("--mine: %w", err))
			}
			return nil
		},
	}
}

// mineOf returns the expression of --mine, nil without the flag.
func mineOf(c *cli.Context) *regexp.Regexp {
	if !c.IsSet("mine") {
		return nil
	}
	return regexp.MustCompile(c.String("mine"))
}

// mine returns stacks in which --mine has marked the user's own code.
func mine(c *cli.Context, st callstack.Stacks) callstack.Stacks { return frames.Mine(st, mineOf(c)) }
