// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/vramprof/vramprof/internal/manual"
)

// completeWord is the first argument of packaging/completions. The library's own completion does
// not know options that stand after files.
const completeWord = "__complete"

// complete prints what the last of the words may be, as lines "WORD\tMEANING". Without a line, the
// shell completes names of files.
func complete(out io.Writer, app *cli.App, words []string) {
	if len(words) < 2 {
		completeCommands(out, app)
		return
	}
	command, last := app.Command(words[0]), words[len(words)-1]
	before := words[1 : len(words)-1]
	if command == nil || slices.Contains(before, "--") {
		return
	}
	if len(before) > 0 {
		if usage, is := takesValue(command, before[len(before)-1]); is {
			for _, value := range valuesIn(usage) {
				fmt.Fprintf(out, "%s\t\n", value)
			}
			return
		}
	}
	switch {
	case strings.HasPrefix(last, "-"):
		completeFlags(out, command)
	case command.Name == "help" && len(before) == 0:
		completeCommands(out, app)
		for _, page := range manual.Pages {
			if app.Command(page.Name) == nil {
				fmt.Fprintf(out, "%s\t%s\n", page.Name, page.Subject)
			}
		}
	}
}

func completeCommands(out io.Writer, app *cli.App) {
	for _, command := range app.Commands {
		fmt.Fprintf(out, "%s\t%s\n", command.Name, command.Usage)
	}
}

func completeFlags(out io.Writer, command *cli.Command) {
	for _, flag := range command.VisibleFlags() {
		usage := ""
		if d, ok := flag.(cli.DocGenerationFlag); ok {
			usage = strings.ReplaceAll(d.GetUsage(), "`", "")
		}
		for _, name := range flag.Names() {
			fmt.Fprintf(out, "%s\t%s\n", dashed(name), usage)
		}
	}
}

// takesValue reports whether a word is an option whose value is the next word, and returns its
// usage.
func takesValue(command *cli.Command, word string) (usage string, is bool) {
	for _, flag := range command.Flags {
		d, ok := flag.(cli.DocGenerationFlag)
		if _, isOptional := flag.(*cli.GenericFlag); !ok || isOptional || !d.TakesValue() {
			continue
		}
		if slices.ContainsFunc(flag.Names(), func(name string) bool { return word == dashed(name) }) {
			return d.GetUsage(), true
		}
	}
	return "", false
}

// valueList matches the values that a usage lists: "trace PyTorch tensors: `WHEN` is auto, on or
// off".
var valueList = regexp.MustCompile("`[A-Z]+`(?: of [A-Z]+)?(?: is|:) ((?:[a-z0-9_-]+, )*[a-z0-9_-]+(?:,? or |, )[a-z0-9_-]+)(?:$|;| \\()")

// valuesIn returns these values; none if there is no list.
func valuesIn(usage string) []string {
	m := valueList.FindStringSubmatch(usage)
	if m == nil {
		return nil
	}
	return strings.FieldsFunc(strings.ReplaceAll(m[1], " or ", ", "), func(r rune) bool { return r == ',' || r == ' ' })
}
