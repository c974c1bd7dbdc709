// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/vramprof/vramprof/internal/lazyregexp"
	"github.com/vramprof/vramprof/internal/manual"
	"github.com/vramprof/vramprof/internal/pslist"
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
	option, with := "", ""
	if name, _, is := strings.Cut(last, "="); is && strings.HasPrefix(name, "--") {
		option, with = name, name+"="
	} else if len(before) > 0 {
		option = before[len(before)-1]
	}
	if usage, is := takesValue(command, option); is || with != "" {
		for _, x := range valuesIn(usage) {
			fmt.Fprintf(out, "%s%s\t%s\n", with, x.value, x.meaning)
		}
		return
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
		if !ok || hasOptionalValue(flag) || !d.TakesValue() {
			continue
		}
		if slices.ContainsFunc(flag.Names(), func(name string) bool { return word == dashed(name) }) {
			return d.GetUsage(), true
		}
	}
	return "", false
}

// value is what an option may have.
type value struct{ value, meaning string }

// valueList matches the values that a usage lists: "trace PyTorch tensors: `WHEN` is auto, on or
// off".
var valueList = lazyregexp.New("`[A-Z]+`(?: of [A-Z]+)?(?: is|:) ((?:[a-z0-9:_-]+, )*[a-z0-9:_-]+(?:,? or |, )[a-z0-9:_-]+)(?:$|;| \\()")

// valuesIn returns these values, and those of what a usage names in general; else none.
func valuesIn(usage string) (list []value) {
	switch {
	case strings.Contains(usage, "`PID`"):
		for _, p := range pslist.Candidates() {
			list = append(list, value{strconv.FormatUint(uint64(p.PID), 10), p.Command})
		}
	case strings.Contains(usage, "`MOMENT`"):
		return []value{{"end", "the end"}, {"peak", "the most memory"}}
	case strings.Contains(usage, "`PURPOSE`"):
		return []value{{"whatif", "replays with other settings"}}
	}
	if m := valueList.FindStringSubmatch(usage); m != nil && list == nil {
		for _, x := range strings.FieldsFunc(strings.ReplaceAll(m[1], " or ", ", "), func(r rune) bool { return r == ',' || r == ' ' }) {
			list = append(list, value{value: x})
		}
	}
	return list
}
