// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/vramprof/vramprof/internal/manual"
	"github.com/vramprof/vramprof/internal/terminal"
)

// helpColumns returns the width of help: that of the terminal, at most terminal.UsualColumns.
func helpColumns() int { return min(terminal.Width(), terminal.UsualColumns) }

// Columns where the text on a flag begins; narrowColumn is for terminals without room beside the
// flags.
const flagColumn, narrowColumn = 24, 8

const appHelp = `{{fold (printf "%s - %s" .Name .Usage) 0}}

usage: {{fold .UsageText 7}}
{{range .VisibleCommands}}{{if ne .Name "help"}}
  {{printf "%-9s" .Name}} {{fold .Usage 12}}{{end}}{{end}}

pages:
{{range pages}}
  {{printf "%-13s" .Name}} {{fold .Subject 16}}{{end}}

{{fold "\"vramprof help NAME\" explains a command and its options, or shows a page." 0}}
`

const commandHelp = `{{fold (printf "%s - %s" .HelpName .Usage) 0}}

usage: {{fold .UsageText 7}}
{{if .Description}}
{{fold .Description 0}}
{{end}}
{{range .VisibleFlags}}{{.}}
{{end}}`

// init sets the layout of help, which also fits narrow terminals. The library has one layout for
// the whole program.
func init() {
	cli.AppHelpTemplate, cli.CommandHelpTemplate, cli.SubcommandHelpTemplate = appHelp, commandHelp, commandHelp
	cli.FlagStringer = flagHelp
}

// printHelp writes a help text. The library ignores errors, so that of writing fails the command.
func (p *program) printHelp(w io.Writer, template string, data any) {
	out := bufio.NewWriter(w)
	cli.HelpPrinterCustom(out, template, data, map[string]any{
		"fold":  func(text string, indent int) string { return terminal.Hanging(text, helpColumns(), indent) },
		"pages": func() []manual.Page { return manual.Pages },
	})
	if err := out.Flush(); err != nil {
		p.fail(fmt.Errorf("write help: %w", err))
	}
}

// flagHelp formats a flag as "-d, --duration TIME   stop after TIME …". The text and its
// continuation lines begin in one column.
func flagHelp(f cli.Flag) string {
	short, long, text := flagText(f)
	name := "      " + long
	if short != "" {
		name = "  " + short + ", " + long
	}
	columns := helpColumns()
	if columns < 2*flagColumn {
		return name + "\n" + strings.Repeat(" ", narrowColumn) + terminal.Hanging(text, columns, narrowColumn)
	}
	name += strings.Repeat(" ", max(flagColumn-len(name), 2))
	return name + terminal.HangingFrom(len(name), text, columns, flagColumn)
}

// flagText returns the names of a flag, with its value, and its text: "-d", "--duration TIME",
// "stop after TIME". Short is "" where it has none.
func flagText(f cli.Flag) (short, long, text string) {
	for _, name := range f.Names() {
		if len(name) == 1 {
			short = "-" + name
		} else {
			long = "--" + name
		}
	}
	if d, ok := f.(cli.DocGenerationFlag); ok {
		text = d.GetUsage()
	}
	if value := defaultOf(f); value != "" && !strings.Contains(text, "(default") {
		text += " (default: " + value + ")"
	}
	if parts := strings.SplitN(text, "`", 3); len(parts) == 3 { // "stop after `TIME`"
		long += " " + parts[1]
		text = strings.Join(parts, "")
	}
	return short, long, text
}

// defaultOf returns the default of a flag, "" for none.
func defaultOf(f cli.Flag) string {
	switch x := f.(type) {
	case *cli.StringFlag:
		return x.Value
	case *cli.StringSliceFlag:
		if x.Value != nil {
			return strings.Join(x.Value.Value(), ", ")
		}
	case *cli.IntFlag:
		if x.Value != 0 {
			return strconv.Itoa(x.Value)
		}
	case *cli.Float64Flag:
		if x.Value != 0 {
			return strconv.FormatFloat(x.Value, 'g', -1, 64)
		}
	}
	return ""
}
