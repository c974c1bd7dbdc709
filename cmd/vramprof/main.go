// SPDX-License-Identifier: Apache-2.0

// Vramprof is a heap profiler for CUDA memory: it attaches to running processes
// and reports who holds every byte of the GPU.
package main

import (
	"bufio"
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

	"github.com/vramprof/vramprof/internal/check"
	"github.com/vramprof/vramprof/internal/fault"
	"github.com/vramprof/vramprof/internal/output"
	"github.com/vramprof/vramprof/internal/serve/notify"
	"github.com/vramprof/vramprof/internal/session"
	"github.com/vramprof/vramprof/internal/terminal"
	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/report/profile"
	"github.com/vramprof/vramprof/tracer"
	"github.com/vramprof/vramprof/tracer/capture"
	"github.com/vramprof/vramprof/tracer/panics"
)

// Exit codes, as users' scripts see them. docs/usage.md shows their comments.
const (
	exitDone      = 0 // success; the first Ctrl-C is a normal end
	exitError     = 1 // an error
	exitUsage     = 2 // a mistake in the command line
	exitLeak      = 3 // `leaks --fail-on-leak` found a line that leaks, with `--older` memory that is older, or with `--unfreed` memory that a process had not freed when it ended
	exitPrivilege = 4 // a privilege or a kernel feature is missing; `vramprof check` reports which
	exitNoProcess = 5 // no process uses CUDA

	// Of `ci` alone, whose other codes are 0 and 1.
	exitUnknown = 125 // `ci`, which has only 0 (good), 1 (bad) and this: it cannot tell, or an error
)

func main() {
	if tracer.IsGuardian(os.Args) {
		session.ConfineGuardian()
	}
	tracer.RunHidden(os.Args)
	session.RunHidden(os.Args)
	check.RunHidden(os.Args)
	notify.RunHidden(os.Args)
	os.Exit(run(os.Args, os.Stdout, os.Stderr))
}

// run executes a command line and returns the exit code.
func run(args []string, stdout, stderr io.Writer) int {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, unix.SIGINT, unix.SIGTERM)
	if !signal.Ignored(unix.SIGHUP) && !(len(args) > 1 && args[1] == "serve") { // nohup ignores it; serve reloads
		signal.Notify(signals, unix.SIGHUP) // a lost connection must not lose the session
	}
	defer signal.Stop(signals)
	stdout, stderr = terminal.Shared(stdout, stderr)
	p := &program{args: args}
	app := newApp(p, stdout, stderr)
	go func() {
		<-signals
		cancel()
		if !p.onlyReads() {
			awaitSecond(signals, p.skipOne)
		}
		p.restoreTerminal()
		fmt.Fprintln(stderr, "vramprof: aborted")
		os.Exit(p.exitCode(errors.New("aborted"))) // the kernel removes the probes
	}()
	err := p.run(ctx, app)
	if err == nil {
		return exitDone
	}
	var ofCapture *capture.LimitError
	var ofProfile *profile.LimitError
	if text := err.Error(); text != "" {
		if errors.As(err, &ofCapture) || errors.As(err, &ofProfile) {
			text += " (--" + noLimits + " reads a file that you trust)"
		}
		fmt.Fprintln(stderr, "vramprof:", untrusted.Clean(text))
	}
	return p.exitCode(err)
}

// exitCode is the function exitCode, but for ci: git bisect would take any code of an error for a
// bad commit.
func (p *program) exitCode(err error) int {
	if mark, _ := fault.Of(err); len(p.args) > 1 && p.args[1] == ciName && mark.Kind != fault.WithStatus {
		return exitUnknown
	}
	return exitCode(err)
}

// awaitSecond waits for a signal that aborts. One that skips something does not. timeout(1) signals
// the process and then its group: both count as one signal.
func awaitSecond(signals <-chan os.Signal, skip func() bool) {
	for again := true; again; again = skip() {
		for last := time.Now(); time.Since(last) < time.Second/2; {
			<-signals
		}
	}
}

// run runs the command and turns a panic into an error of one line: a Go stack trace does not
// help a user.
func (p *program) run(ctx context.Context, app *cli.App) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("internal error, please report it: %v at %s", r, panics.Panicked())
		}
	}()
	if len(p.args) > 1 && p.args[1] == completeWord {
		out := bufio.NewWriter(app.Writer)
		complete(out, app, p.args[2:])
		return out.Flush()
	}
	if err = app.RunContext(ctx, oneForm(app, optionsFirst(app, p.args))); err == nil {
		err = p.failed
	}
	return err
}

func newApp(p *program, stdout, stderr io.Writer) *cli.App {
	cli.HelpPrinter = p.printHelp
	app := &cli.App{
		Name:      "vramprof",
		Usage:     "heap profiler for CUDA memory of running processes",
		UsageText: "vramprof COMMAND [OPTIONS]",
		Commands: []*cli.Command{
			recordCommand(p), topCommand(p), serveCommand(p), reportCommand(p), leaksCommand(p), explainCommand(p), diffCommand(), compareCommand(), ciCommand(p), exportCommand(p), whatifCommand(), fitCommand(), holdersCommand(), snapshotCommand(), psCommand(), mcpCommand(), checkCommand(), versionCommand(), helpCommand(),
		},
		Flags: []cli.Flag{ // the library adds the first only where no command has that name
			cli.HelpFlag, &cli.BoolFlag{Name: "version", Usage: "print the version", DisableDefaultText: true},
		},
		Writer: stdout, ErrWriter: stderr,
		ExitErrHandler: func(*cli.Context, error) {},
		OnUsageError:   onUsageError,
		HideVersion:    true,
		Action: func(c *cli.Context) error {
			if c.Args().Present() {
				return noCommand(c, c.Args().First())
			}
			if c.Bool("version") {
				return printVersion(c)
			}
			return cli.ShowAppHelp(c)
		},
	}
	for _, command := range app.Commands {
		command.OnUsageError = onUsageError
		command.HideHelpCommand = true
		run := command.Action
		command.Action = func(c *cli.Context) error { return p.action(c, run) }
	}
	return app
}

// onUsageError adds to an error which help explains the flags.
func onUsageError(c *cli.Context, err error, _ bool) error {
	text := withDashes(err.Error())
	name := strings.TrimSpace("vramprof " + c.Command.Name)
	if c.Command.Name == "vramprof" {
		return fault.Usage(fmt.Errorf("%s (a command comes first: vramprof top -p PID; see vramprof --help)", text))
	}
	return fault.Usage(fmt.Errorf("%s (see %s --help)", text, name))
}

// noCommand returns an error that lists the commands.
func noCommand(c *cli.Context, name string) error {
	var names []string
	for _, command := range c.App.Commands {
		names = append(names, command.Name)
	}
	return fault.Usage(fmt.Errorf("unknown command %q (commands: %s)", name, strings.Join(names, ", ")))
}

// flagErrors rewrite errors of package flag, and of the library above it, that name flags with one
// dash or none.
var flagErrors = []struct {
	text *regexp.Regexp
	say  func(m []string) string
}{
	{regexp.MustCompile(`^flag provided but not defined: -(.+)$`), func(m []string) string { return "unknown flag " + dashed(m[1]) }},
	{regexp.MustCompile(`^flag needs an argument: -(.+)$`), func(m []string) string { return dashed(m[1]) + " needs a value" }},
	{regexp.MustCompile(`(?s)^(invalid (?:boolean )?value ".*" for (?:flag )?)-([^:]+)(: .*)$`), func(m []string) string { return m[1] + dashed(m[2]) + m[3] }},
	{regexp.MustCompile(`^Cannot use two forms of the same flag: (\S+) (\S+)$`), func(m []string) string {
		return dashed(m[1]) + " and " + dashed(m[2]) + " are the same flag (use one of them)"
	}},
}

// withDashes writes the flags in an error as help does: -d, --duration.
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

func exitCode(err error) int {
	mark, marked := fault.Of(err)
	var unwritten output.Error
	switch {
	case marked && mark.Kind == fault.WithStatus:
		return mark.Status
	case marked && mark.Kind == fault.Failed:
		return exitError
	case marked && mark.Kind == fault.NoPrivilege:
		return exitPrivilege
	case marked && mark.Kind == fault.NoProcess:
		return exitNoProcess
	case errors.As(err, &unwritten):
		return exitError
	case marked, errors.Is(err, output.ErrTerminal):
		return exitUsage
	case errors.Is(err, tracer.ErrNoProcess):
		return exitNoProcess
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return exitPrivilege
	}
	return exitError
}
