// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/urfave/cli/v2"
)

// helpWidth is what a terminal has at least.
const helpWidth = 80

const flagColumn = 24

const appHelp = `{{.Name}} - {{.Usage}}

usage: {{.UsageText}}
{{range .VisibleCommands}}{{if ne .Name "help"}}
  {{printf "%-9s" .Name}} {{.Usage}}{{end}}{{end}}

"vramprof help COMMAND" explains a command and its options.
`

const commandHelp = `{{.HelpName}} - {{.Usage}}

usage: {{.UsageText}}
{{if .Description}}
{{wrap .Description 0}}
{{end}}
{{range .VisibleFlags}}{{.}}
{{end}}`

// init lays out help for narrow terminals. The library has one layout for the
// whole program.
func init() {
	cli.AppHelpTemplate, cli.CommandHelpTemplate, cli.SubcommandHelpTemplate = appHelp, commandHelp, commandHelp
	cli.FlagStringer = flagHelp
	cli.HelpPrinter = func(w io.Writer, template string, data any) {
		cli.HelpPrinterCustom(w, template, data, map[string]any{"wrapAt": func() int { return helpWidth }})
	}
}

func helpCommand() *cli.Command {
	return &cli.Command{
		Name:      "help",
		Usage:     "explain a command and its options",
		UsageText: "vramprof help [COMMAND]",
		Action: func(c *cli.Context) error {
			name := c.Args().First()
			switch {
			case c.Args().Len() > 1:
				return usageError{fmt.Errorf("unexpected argument %q (see vramprof help)", c.Args().Get(1))}
			case name == "":
				return cli.ShowAppHelp(c)
			case c.App.Command(name) == nil:
				return noCommand(c, name)
			}
			return cli.ShowCommandHelp(c, name)
		},
	}
}

// flagHelp is "-d, --duration TIME   stop after TIME …": the text begins in one
// column, and so do the lines that follow.
func flagHelp(f cli.Flag) string {
	short, long := "      ", ""
	for _, name := range f.Names() {
		if len(name) == 1 {
			short = "  -" + name + ", "
		} else {
			long = "--" + name
		}
	}
	text := ""
	if d, ok := f.(cli.DocGenerationFlag); ok {
		text = d.GetUsage()
	}
	if parts := strings.SplitN(text, "`", 3); len(parts) == 3 { // "stop after `TIME`"
		long += " " + parts[1]
		text = strings.Join(parts, "")
	}
	name := short + long
	gap := strings.Repeat(" ", max(flagColumn-len(name), 2))
	return name + gap + hanging(text, helpWidth, flagColumn)
}

// hanging breaks text into lines of at most width columns, all but the first of which
// are indented; the first begins in that column.
func hanging(text string, width, indent int) string {
	var b strings.Builder
	column := indent
	for i, word := range strings.Fields(text) {
		n := utf8.RuneCountInString(word)
		switch {
		case i == 0:
		case column+1+n > width:
			b.WriteString("\n" + strings.Repeat(" ", indent))
			column = indent
		default:
			b.WriteByte(' ')
			column++
		}
		b.WriteString(word)
		column += n
	}
	return b.String()
}
