// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/urfave/cli/v2"

	"github.com/vramprof/vramprof/internal/duration"
	"github.com/vramprof/vramprof/internal/fault"
	"github.com/vramprof/vramprof/internal/remote"
	"github.com/vramprof/vramprof/internal/session"
	"github.com/vramprof/vramprof/tracer"
	"github.com/vramprof/vramprof/tracer/heapscan"
	"github.com/vramprof/vramprof/tracer/unwindcache"
)

// traceFlags returns the flags of every command that traces.
func traceFlags() []cli.Flag {
	return traceFlagsWith("report what is probed, and the kernel memory taken")
}

// traceFlagsWith returns the flags of a command that traces and has a meaning of its own for -v.
func traceFlagsWith(verbose string) []cli.Flag {
	return append([]cli.Flag{
		&cli.StringSliceFlag{Name: "pid", Aliases: []string{"p"}, Usage: "trace process `PID` (repeatable)"},
		&cli.BoolFlag{Name: "all", Aliases: []string{"a"}, Usage: "trace every CUDA process, and wait if there is none yet"},
		&cli.StringFlag{Name: "name", Usage: "trace processes, also later ones, whose name, program or script matches the regular expression `REGEX`"},
		&cli.StringFlag{Name: "duration", Aliases: []string{"d"}, Usage: "stop after `TIME`: 30s, 10m, or plain seconds"},
		&cli.StringFlag{Name: "tensors", Value: "auto", Usage: "trace PyTorch tensors: `WHEN` is auto, on or off"},
		budgetFlag("off"),
		&cli.StringFlag{Name: "sample", Value: "auto", Usage: "take the stack of one tensor in `BYTES` on average; 0: of every tensor; auto: 1MiB, less often above 4,000 stacks per second"},
		driverObjectsFlag(),
		&cli.StringFlag{Name: "holders", Value: "end", Usage: "look for who keeps PyTorch's tensors: `WHEN` is off, end (at the attach, at the end, and ever more rarely between) or every 30s, 10m, …"},
		&cli.StringFlag{Name: "holders-time", Value: "2s", Usage: "look at the end for at most `TIME` in all, the largest processes first; the first may take longer"},
		&cli.BoolFlag{Name: "no-names", Usage: "read classes of holders, not names of variables, attributes and keys"},
		&cli.StringFlag{Name: "max-memory", Value: "auto", Usage: "stop tracing before vramprof exceeds `BYTES`; auto: a quarter of the memory, 512MiB to 4GiB"},
		&cli.BoolFlag{Name: "verbose", Aliases: []string{"v"}, Usage: verbose},
	}, cacheFlags()...)
}

// budgetFlag returns the flag --budget of a command, with its default.
func budgetFlag(standard string) cli.Flag {
	return &cli.StringFlag{Name: "budget", Value: standard, Usage: "trace the tensors of a process only at random times if tracing all of them takes more than `PERCENT` of a thread's time: off, or 0 (none) to 100"}
}

func driverObjectsFlag() cli.Flag {
	return &cli.BoolFlag{Name: "driver-objects", Usage: "also trace what the driver takes for itself (contexts, modules, local memory), by its requests to the kernel"}
}

// noArguments returns an error if a command that takes only flags has arguments.
func noArguments(c *cli.Context) error {
	if !c.Args().Present() {
		return nil
	}
	first, remedy := c.Args().First(), fmt.Sprintf("see vramprof %s --help", c.Command.Name)
	if isPID(first) && hasPID(c) {
		remedy = fmt.Sprintf("for that process: -p %s", first)
	}
	return fault.Usage(fmt.Errorf("unexpected argument %q (%s)", first, remedy))
}

// commandOf returns the words after "--". Any other argument is a mistake: most likely a pid or a
// file, not a program to start.
func (p *program) commandOf(c *cli.Context) ([]string, error) {
	all := p.args
	rest := c.Args().Slice()
	if len(rest) == 0 {
		if len(all) > 0 && all[len(all)-1] == "--" {
			return nil, fault.Usage(errors.New(`no command after "--"`))
		}
		return nil, nil
	}
	if p.afterDashes(c) {
		return rest, nil
	}
	first := rest[0]
	if isPID(first) {
		return nil, fault.Usage(fmt.Errorf("unexpected argument %q (to trace that process: -p %s)", first, first))
	}
	return nil, fault.Usage(fmt.Errorf("unexpected argument %q (to start and trace a command: vramprof %s -- %s)", first, c.Command.Name, strings.Join(rest, " ")))
}

// afterDashes reports whether the arguments follow "--".
func (p *program) afterDashes(c *cli.Context) bool {
	all := p.args
	at := len(all) - c.Args().Len() - 1
	return at >= 0 && all[at] == "--"
}

// isPID reports whether a word may be meant as a process id.
func isPID(text string) bool {
	_, err := strconv.ParseUint(text, 10, 31)
	return err == nil
}

// hasPID reports whether a command has the flag -p.
func hasPID(c *cli.Context) bool {
	return slices.ContainsFunc(c.Command.Flags, func(f cli.Flag) bool { return slices.Contains(f.Names(), "p") })
}

// notAFile adds to the error of a file that does not exist how to name a process, if its name is a
// number.
func notAFile(c *cli.Context, err error) error {
	var of *fs.PathError
	if errors.Is(err, fs.ErrNotExist) && errors.As(err, &of) && isPID(of.Path) && hasPID(c) {
		return fmt.Errorf("%w (for process %s: vramprof %s -p %s)", err, of.Path, c.Command.Name, of.Path)
	}
	return err
}

// onePID is the value of --pid of a command that reads one process. Of several, the library would
// take the last without a word.
type onePID uint32

func (p *onePID) Set(text string) error {
	switch pid, err := strconv.ParseUint(text, 10, 31); {
	case err != nil || pid == 0:
		return errors.New("it is not a process id (vramprof ps lists them)")
	case *p != 0 && *p != onePID(pid):
		return fmt.Errorf("it reads one process, and %d was named before", *p)
	default:
		*p = onePID(pid)
		return nil
	}
}

func (p *onePID) String() string { return strconv.FormatUint(uint64(*p), 10) }

func pidFlag(usage string) cli.Flag {
	return &cli.GenericFlag{Name: "pid", Aliases: []string{"p"}, Value: new(onePID), Usage: usage}
}

// pidOf reads pidFlag, 0 without it.
func pidOf(c *cli.Context) uint32 { return uint32(*c.Generic("pid").(*onePID)) }

// pidsOf reads --pid: "-p 42,43 -p 44".
func pidsOf(c *cli.Context) (pids []uint32, err error) {
	for _, list := range c.StringSlice("pid") {
		for text := range strings.SplitSeq(list, ",") {
			pid, err := strconv.ParseUint(text, 10, 31)
			if err != nil || pid == 0 {
				return nil, fault.Usage(fmt.Errorf("%q is not a process id (vramprof ps lists them; --name selects by name)", text))
			}
			pids = append(pids, uint32(pid))
		}
	}
	return pids, nil
}

// configOf reads from the flags which processes to trace, and how.
func (p *program) configOf(c *cli.Context) (tracer.Config, error) {
	command, err := p.commandOf(c)
	if err != nil {
		return tracer.Config{}, err
	}
	config := tracer.Config{Command: command, Wait: c.Bool("all") || c.IsSet("name")}
	if config.PIDs, err = pidsOf(c); err != nil {
		return config, err
	}
	if c.IsSet("name") {
		if c.String("name") == "" {
			return config, fault.Usage(errors.New("--name is empty (-a traces every process)"))
		}
		if _, err := regexp.Compile(c.String("name")); err != nil {
			return config, fault.Usage(fmt.Errorf("--name: %w", err))
		}
		// The tracer matches several names at once, one per line.
		config.Name = regexp.MustCompile("(?m:" + c.String("name") + ")")
	}
	config.DriverObjects = c.Bool("driver-objects")
	if err := tensorFlags(c, &config); err != nil {
		return config, err
	}
	if err := purposeFlag(c, &config); err != nil {
		return config, err
	}
	if config.Walks, err = walksOf(c); err != nil {
		return config, err
	}
	chosen := 0
	for _, yes := range []bool{len(config.PIDs) > 0, c.Bool("all"), c.IsSet("name"), len(command) > 0} {
		if yes {
			chosen++
		}
	}
	if chosen > 1 {
		return config, fault.Usage(errors.New("use only one of --pid, --all, --name and a command"))
	}
	return config, nil
}

// sessionConfig reads the flags of a command that traces.
func (p *program) sessionConfig(c *cli.Context) (session.Config, error) {
	config := session.Config{
		MaxMemory: c.String("max-memory"), Mine: mineOf(c), Tool: "vramprof " + version, Verbose: c.Bool("verbose"), Stderr: c.App.ErrWriter,
		Writes: folders(c), Force: c.Bool("force"), Screen: c.Command.Name == "top",
		Cache:  session.Cache{Dir: c.String("cache"), Named: c.IsSet("cache"), Off: c.Bool("no-cache")},
		Server: remote.DefaultSocket, Skippable: p.setSkip, Fail: p.fail,
	}
	if !p.afterDashes(c) {
		config.Advice = advice[c.Command.Name]
	}
	var err error
	if config.Trace, err = p.configOf(c); err != nil {
		return config, err
	}
	if config.Duration, err = duration.Parse(c.String("duration")); err != nil {
		return config, fault.Usage(err)
	}
	if config.Cache.Off && config.Cache.Named {
		return config, fault.Usage(errors.New("use only one of --cache and --no-cache"))
	}
	return config, nil
}

// newSession returns the session that the flags describe.
func (p *program) newSession(c *cli.Context) (*session.Session, error) {
	config, err := p.sessionConfig(c)
	if err != nil {
		return nil, err
	}
	return session.New(c.Context, config)
}

// confine drops the privileges that a command which reads processes does not need. If that fails,
// it reads nevertheless.
func confine(c *cli.Context, r session.Reading) {
	if err := r.Confine(); err != nil {
		fmt.Fprintf(c.App.ErrWriter, "vramprof: cannot drop privileges: %v\n", err)
	}
}

// advice has what to do instead of attaching where vramprof serve runs, by command.
var advice = map[string]string{
	"top": "--connect asks it", "report": "--connect asks it", "leaks": "--connect asks it", "export": "--connect asks it",
	"record": "vramprof report --connect shows what it knows, and its archive has the past,",
}

// leastEvery is the least time between walks of a process: one takes 0.1 to 1 s of a processor.
const leastEvery = time.Second

// walksOf reads --holders, --holders-time and --no-names. It returns nil for off.
func walksOf(c *cli.Context) (*heapscan.Options, error) {
	o := &heapscan.Options{HideNames: c.Bool("no-names")}
	switch when := c.String("holders"); when {
	case "off":
		return nil, nil
	case "end":
	default:
		every, err := duration.Parse(when)
		if err != nil || every < leastEvery {
			return nil, fault.Usage(fmt.Errorf("--holders is off, end or a time from 1s on, not %q", when))
		}
		o.Every = every
	}
	if text := c.String("holders-time"); text != "" { // serve has no such flag
		last, err := duration.Parse(text)
		if err != nil || last <= 0 {
			return nil, fault.Usage(fmt.Errorf("--holders-time is a time above 0, not %q (--holders=off looks for none)", text))
		}
		o.LastTime = last
	}
	return o, nil
}

// --sample=auto: this many stacks per second cost a program about 2 % of a core, and few programs
// need more.
const (
	autoSample      = 1 << 20
	autoSampleLimit = 4000
)

// budgetOf reads --budget: the share of a thread's time that tracing of tensors may take, or 0 for
// no limit. It reports whether tensors are traced.
func budgetOf(c *cli.Context) (share float64, tensors bool, err error) {
	text := c.String("budget")
	if text == "off" {
		return 0, true, nil
	}
	percent, err := strconv.ParseFloat(strings.TrimSuffix(text, "%"), 64)
	if err != nil || !(percent >= 0 && percent <= 100) {
		return 0, false, fault.Usage(fmt.Errorf("--budget is off or a percentage from 0 to 100, not %q", text))
	}
	if percent == 0 && c.String("tensors") == "on" {
		return 0, false, fault.Usage(errors.New("use only one of --budget 0 and --tensors=on"))
	}
	return percent / 100, percent > 0, nil
}

// tensorFlags reads --tensors, --budget and --sample.
func tensorFlags(c *cli.Context, config *tracer.Config) error {
	switch c.String("tensors") {
	case "auto":
	case "on":
		config.WantTensors = true
	case "off":
		config.NoTensors = true
	default:
		return fault.Usage(fmt.Errorf("--tensors is auto, on or off, not %q", c.String("tensors")))
	}
	share, tensors, err := budgetOf(c)
	if err != nil {
		return err
	}
	config.Budget, config.NoTensors = share, config.NoTensors || !tensors
	if c.String("sample") == "auto" {
		config.Sample, config.SampleLimit = autoSample, autoSampleLimit
		return nil
	}
	sample, err := humanize.ParseBytes(c.String("sample"))
	if err != nil {
		return fault.Usage(fmt.Errorf("--sample: %q is neither auto nor a number of bytes (64KiB, 1MiB, 0)", c.String("sample")))
	}
	config.Sample = sample
	return nil
}

func cacheFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "cache", Value: unwindcache.Default, Usage: "keep unwind tables of libraries in `DIR` for later sessions, which then start faster"},
		&cli.BoolFlag{Name: "no-cache", Usage: "keep no unwind tables, and use none that are kept"},
	}
}
