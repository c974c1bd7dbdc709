// SPDX-License-Identifier: Apache-2.0

// Vramprof is a heap profiler for CUDA memory: it attaches to processes that
// run, and says who holds every byte of the GPU.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"

	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/tracer"
	"github.com/vramprof/vramprof/tracer/capture"
)

// Exit codes, as users' scripts see them.
const (
	exitError     = 1
	exitUsage     = 2
	exitLeak      = 3
	exitPrivilege = 4
	exitNoProcess = 5
)

func main() {
	if tracer.IsGuardian(os.Args) {
		confineGuardian()
	}
	tracer.RunHidden(os.Args)
	runOrder(os.Args)
	os.Exit(run(os.Args, os.Stdout, os.Stderr))
}

// run is the whole program but for the process around it. It returns the exit code.
func run(args []string, stdout, stderr io.Writer) int {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, unix.SIGINT, unix.SIGTERM)
	if !signal.Ignored(unix.SIGHUP) { // as nohup has it
		signal.Notify(signals, unix.SIGHUP) // a lost connection must not lose what was traced
	}
	defer signal.Stop(signals)
	go func() {
		<-signals
		cancel()
		// timeout(1) signals the process and then its group: that is one wish, not two.
		for first := time.Now(); time.Since(first) < time.Second/2; {
			<-signals
		}
		fmt.Fprintln(stderr, "vramprof: aborted")
		os.Exit(exitError) // the kernel takes the probes away
	}()
	app := newApp(args, stdout, stderr)
	err := runApp(ctx, app, args)
	if err == nil {
		return 0
	}
	var limit *capture.LimitError
	if text := err.Error(); text != "" {
		if errors.As(err, &limit) {
			text += " (--" + noLimits + " reads a file that you trust)"
		}
		fmt.Fprintln(stderr, "vramprof:", untrusted.Clean(text))
	}
	return exitCode(err)
}

// failedKey is where a command leaves an error that shall not keep it from writing what it has.
const failedKey = "failed"

// runApp ends with one line whatever happens: a stack trace of Go says nothing to a person.
func runApp(ctx context.Context, app *cli.App, args []string) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("a defect of vramprof, please report it: %v at %s", r, tracer.Panicked())
		}
	}()
	if err = app.RunContext(ctx, optionsFirst(app, args)); err == nil {
		err, _ = app.Metadata[failedKey].(error)
	}
	return err
}

func newApp(args []string, stdout, stderr io.Writer) *cli.App {
	app := &cli.App{
		Name:      "vramprof",
		Usage:     "heap profiler for CUDA memory of running processes",
		UsageText: "vramprof COMMAND [OPTIONS]",
		Commands: []*cli.Command{
			recordCommand(), reportCommand(), leaksCommand(), diffCommand(), exportCommand(), psCommand(), checkCommand(), versionCommand(), helpCommand(),
		},
		Flags:  []cli.Flag{cli.HelpFlag}, // which the library adds only where there is no command of that name
		Writer: stdout, ErrWriter: stderr,
		Metadata:       map[string]any{"args": args},
		ExitErrHandler: func(*cli.Context, error) {},
		OnUsageError:   onUsageError,
		HideVersion:    true,
		Action: func(c *cli.Context) error {
			if c.Args().Present() {
				return noCommand(c, c.Args().First())
			}
			return cli.ShowAppHelp(c)
		},
	}
	for _, command := range app.Commands {
		command.OnUsageError = onUsageError
		command.HideHelpCommand = true
	}
	return app
}

// onUsageError says where the flags are explained.
func onUsageError(c *cli.Context, err error, _ bool) error {
	text := withDashes(err.Error())
	name := strings.TrimSpace("vramprof " + c.Command.Name)
	if c.Command.Name == "vramprof" {
		name = c.Command.Name
	}
	return usageError{fmt.Errorf("%s (see %s --help)", text, name)}
}

// noCommand says which commands there are.
func noCommand(c *cli.Context, name string) error {
	var names []string
	for _, command := range c.App.Commands {
		names = append(names, command.Name)
	}
	return usageError{fmt.Errorf("there is no command %q (commands: %s)", name, strings.Join(names, ", "))}
}

// flagErrors are those of package flag, and of the library over it, that name flags with one dash or none.
var flagErrors = []struct {
	text *regexp.Regexp
	say  func(m []string) string
}{
	{regexp.MustCompile(`^flag provided but not defined: -(.+)$`), func(m []string) string { return "there is no flag " + dashed(m[1]) }},
	{regexp.MustCompile(`^(flag needs an argument: )-(.+)$`), func(m []string) string { return m[1] + dashed(m[2]) }},
	{regexp.MustCompile(`(?s)^(invalid (?:boolean )?value ".*" for (?:flag )?)-([^:]+)(: .*)$`), func(m []string) string { return m[1] + dashed(m[2]) + m[3] }},
	{regexp.MustCompile(`^Cannot use two forms of the same flag: (\S+) (\S+)$`), func(m []string) string {
		return dashed(m[1]) + " and " + dashed(m[2]) + " are the same flag (give one of them)"
	}},
}

// withDashes writes flags as help does: -d, --duration.
func withDashes(text string) string {
	for _, e := range flagErrors {
		if m := e.text.FindStringSubmatch(text); m != nil {
			return e.say(m)
		}
	}
	return text
}

func dashed(name string) string {
	if utf8.RuneCountInString(name) == 1 {
		return "-" + name
	}
	return "--" + name
}

// usageError is a mistake in the command line.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// codedError carries an exit code of its own.
type codedError struct {
	error
	code int
}

func (e codedError) Unwrap() error { return e.error }

func exitCode(err error) int {
	var coded codedError
	var usage usageError
	switch {
	case errors.As(err, &coded):
		return coded.code
	case errors.As(err, &usage):
		return exitUsage
	case errors.Is(err, tracer.ErrNoProcess):
		return exitNoProcess
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return exitPrivilege
	}
	return exitError
}
