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
	takesValue := map[string]bool{}
	for _, f := range command.Flags {
		_, isBool := f.(*cli.BoolFlag)
		_, isOptional := f.(*cli.GenericFlag) // --connect, --connect=SOCKET
		for _, name := range f.Names() {
			takesValue[name] = !isBool && !isOptional
		}
	}
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
