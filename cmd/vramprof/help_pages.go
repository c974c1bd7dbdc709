// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"

	"github.com/urfave/cli/v2"

	"github.com/vramprof/vramprof/internal/fault"
	"github.com/vramprof/vramprof/internal/manual"
	"github.com/vramprof/vramprof/internal/terminal"
)

// mostHelpColumns is the width beyond which lines of a page would be hard to read.
const mostHelpColumns = 120

func helpCommand() *cli.Command {
	return &cli.Command{
		Name:      "help",
		Usage:     "explain a command and its options, or show a page",
		UsageText: "vramprof help [COMMAND | PAGE]",
		Description: "Without an argument, commands and pages are listed. A page that has the name of a command follows the help of the command. " +
			"A terminal shows pages in $PAGER (default: less); a pipe gets plain text.",
		Action: func(c *cli.Context) error {
			if c.Args().Len() > 1 {
				return fault.Usage(fmt.Errorf("unexpected argument %q (see vramprof help)", c.Args().Get(1)))
			}
			if name := c.Args().First(); name != "" {
				return showHelp(c, name)
			}
			return cli.ShowAppHelp(c)
		},
	}
}

// showHelp writes the help of a command, and the page of that name.
func showHelp(c *cli.Context, name string) error {
	page, isPage := manual.Find(name)
	isCommand := c.App.Command(name) != nil
	switch {
	case !isPage && !isCommand:
		return noHelp(c, name)
	case !isPage:
		return cli.ShowCommandHelp(c, name)
	}
	document, err := page.Read()
	if err != nil {
		return err
	}
	return terminal.Paged(c.App.Writer, func(out io.Writer, styled bool) error {
		if isCommand {
			writer := c.App.Writer
			c.App.Writer = out
			err := cli.ShowCommandHelp(c, name)
			c.App.Writer = writer
			if err != nil {
				return err
			}
			fmt.Fprintln(out)
		}
		return manual.Write(out, document, min(terminal.Width(), mostHelpColumns), styled)
	})
}

// noHelp returns an error that names the command or page that was probably meant.
func noHelp(c *cli.Context, name string) error {
	var names []string
	for _, command := range c.App.Commands {
		names = append(names, command.Name)
	}
	for _, page := range manual.Pages {
		names = append(names, page.Name)
	}
	advice := "vramprof help lists both"
	if nearest := manual.Nearest(name, names); nearest != "" {
		advice = fmt.Sprintf("did you mean %q? vramprof help lists all", nearest)
	}
	return fault.Usage(fmt.Errorf("no command or page %q (%s)", name, advice))
}
