// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
)

// optionsFirst moves the options of commands that take files before the files, as the library
// requires: users type "vramprof report run.vram --view tree". Words after "--" stay in place.
func optionsFirst(app *cli.App, args []string) []string {
	if len(args) < 3 {
		return args
	}
	command := app.Command(args[1])
	if command == nil || !slices.Contains([]string{"report", "explain", "leaks", "top", "export", "diff", "compare", "whatif", "fit"}, command.Name) {
		return args
	}
	takesValue := withValues(command)
	options, files := slices.Clone(args[:2]), []string{}
	for i := 2; i < len(args); i++ {
		word := args[i]
		name := strings.TrimLeft(word, "-")
		switch {
		case word == "--":
			return append(append(options, files...), args[i:]...)
		case name == word || name == "":
			files = append(files, word)
		default:
			options = append(options, word)
			if takesValue[name] && i+1 < len(args) {
				i++
				options = append(options, args[i])
			}
		}
	}
	return append(options, files...)
}

// withValues returns the names of flags whose value is the next word.
func withValues(command *cli.Command) map[string]bool {
	names := map[string]bool{}
	for _, f := range command.Flags {
		_, isBool := f.(*cli.BoolFlag)
		for _, name := range f.Names() {
			names[name] = !isBool && !hasOptionalValue(f)
		}
	}
	return names
}

// oneForm writes short forms of flags as the long ones where a flag may be repeated, as in
// -v --verbose and -p 1 --pid 2: the library takes two forms of a flag for a mistake.
func oneForm(app *cli.App, args []string) []string {
	if len(args) < 3 {
		return args
	}
	command := app.Command(args[1])
	if command == nil {
		return args
	}
	long := map[string]string{}
	for _, f := range command.Flags {
		switch f.(type) {
		case *cli.BoolFlag, *cli.StringSliceFlag:
			for _, name := range f.Names() {
				long[name] = f.Names()[0]
			}
		}
	}
	takesValue, list := withValues(command), slices.Clone(args)
	for i := 2; i < len(list) && list[i] != "--"; i++ {
		name, value, valued := strings.Cut(strings.TrimLeft(list[i], "-"), "=")
		if !strings.HasPrefix(list[i], "-") {
			continue
		}
		if to := long[name]; to != "" && to != name {
			list[i] = "--" + to
			if valued {
				list[i] += "=" + value
			}
		}
		if takesValue[name] && !valued {
			i++
		}
	}
	return list
}

// hasOptionalValue reports whether a flag is one as --connect, --connect=SOCKET.
func hasOptionalValue(f cli.Flag) bool {
	g, ok := f.(*cli.GenericFlag)
	if ok {
		_, ok = g.Value.(*socketValue)
	}
	return ok
}
